//! Convolutions, transposed convolutions and weight gradients through cuDNN. The algorithm is the fastest of the
//! deterministic ones; it is measured once and stored in the cache.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys as dnn;
use monosplit_graph::{Error, Result};

use super::Math;
use super::device::{Device, DriverResult};
use super::memory_format::MemoryFormat;

/// Which of the three tensors of a convolution is computed from the other two. The names are those of cuDNN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The result: a convolution.
    Forward,
    /// The input: a transposed convolution.
    BackwardData,
    /// The kernel: a weight gradient.
    BackwardFilter,
}

impl Direction {
    /// Its name in the cache. Cache files outlive a version of the program, so these names do not change.
    fn cache_name(self) -> &'static str {
        match self {
            Direction::Forward => "Result",
            Direction::BackwardData => "Input",
            Direction::BackwardFilter => "Kernel",
        }
    }
}

/// Sizes of a convolution, with two or three spatial axes and the same padding before and after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// `[samples, channels, …]`
    pub(super) input: Vec<i32>,
    /// `[channels out, channels in of a group, …]`
    pub(super) kernel: Vec<i32>,
    /// `[samples, channels out, …]`
    pub(super) result: Vec<i32>,
    pub(super) pad: Vec<i32>,
    pub(super) stride: Vec<i32>,
    pub(super) dilation: Vec<i32>,
    pub(super) groups: i32,
    /// The memory format of all three tensors.
    pub(super) format: MemoryFormat,
}

/// The device addresses of the three tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors {
    pub(super) input: u64,
    pub(super) kernel: u64,
    pub(super) result: u64,
}

/// The descriptors and the algorithm of a convolution, without addresses.
pub(super) struct CudnnPlan {
    input: dnn::cudnnTensorDescriptor_t,
    kernel: dnn::cudnnFilterDescriptor_t,
    result: dnn::cudnnTensorDescriptor_t,
    window: dnn::cudnnConvolutionDescriptor_t,
    direction: Direction,
    algorithm: i32,
    /// Bytes of workspace it needs.
    pub(super) workspace: usize,
    double: bool,
    /// Whether factors must not be rounded.
    exact: bool,
}

/// A convolution ready to be enqueued.
pub(super) struct Convolution {
    pub(super) plan: CudnnPlan,
    pub(super) tensors: Tensors,
    pub(super) workspace: u64,
}

fn numbers(values: &[i32]) -> String {
    values.iter().map(|n| n.to_string()).collect::<Vec<_>>().join("x")
}

/// An algorithm and its arithmetic as the one number that the cache stores.
fn encoded(algorithm: u32, arithmetic: u32) -> i32 {
    (algorithm * 16 + arithmetic) as i32
}

impl CudnnPlan {
    /// Chooses an algorithm. The caller has locked the device.
    pub(super) fn new(
        device: &Arc<Device>,
        geometry: &Geometry,
        direction: Direction,
        math: Math,
    ) -> Result<Self> {
        let mut plan = CudnnPlan::described(geometry, direction, math)?;
        let key = format!(
            "{} {math:?} {} {} {} {} {} {}{}",
            direction.cache_name(),
            numbers(&geometry.input),
            numbers(&geometry.kernel),
            numbers(&geometry.pad),
            numbers(&geometry.stride),
            numbers(&geometry.dilation),
            geometry.groups,
            if geometry.format == MemoryFormat::ChannelsLast { " last" } else { "" }
        );
        let known = device.cache.algorithm(&key);
        // The cache file may be damaged, so the algorithm is checked.
        if known.is_some_and(|chosen| plan.set_algorithm(device, chosen).is_ok()) {
            return Ok(plan);
        }
        match plan.fastest(device)? {
            Some(chosen) => {
                plan.set_algorithm(device, chosen)?;
                device.cache.keep_algorithm(&key, chosen);
            }
            // No algorithm could be measured. This one is deterministic and always available; it is not stored.
            None => {
                plan.set_algorithm(device, encoded(if direction == Direction::Forward { 0 } else { 1 }, 3))?
            }
        }
        Ok(plan)
    }

    fn described(geometry: &Geometry, direction: Direction, math: Math) -> Result<Self> {
        use dnn::cudnnDataType_t::{CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT};
        use dnn::cudnnMathType_t::{CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH};
        let mut plan = CudnnPlan {
            input: std::ptr::null_mut(),
            kernel: std::ptr::null_mut(),
            result: std::ptr::null_mut(),
            window: std::ptr::null_mut(),
            direction,
            algorithm: 0,
            workspace: 0,
            double: math == Math::F64,
            exact: matches!(math, Math::F32 | Math::F64),
        };
        let (kind, compute, arithmetic) = match math {
            Math::F64 => (CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_FMA_MATH),
            Math::F32 => (CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH),
            Math::Tf32 => (CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH),
            Math::Bf16 => (CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH),
        };
        let spatial = geometry.pad.len() as i32;
        // SAFETY: every descriptor is created before it is set, and destroyed with `plan`. Arrays have the lengths passed.
        unsafe {
            for (descriptor, dims) in
                [(&mut plan.input, &geometry.input), (&mut plan.result, &geometry.result)]
            {
                dnn::cudnnCreateTensorDescriptor(descriptor).result().or_failed_to("describe a tensor")?;
                let lengths: Vec<usize> = dims.iter().map(|&length| length as usize).collect();
                let strides = geometry.format.strides(&lengths);
                let strides: Vec<i32> =
                    strides.into_iter().map(|stride| i32::try_from(stride).unwrap_or(i32::MAX)).collect();
                let (dims, strides, rank) = (dims.as_ptr(), strides.as_ptr(), dims.len() as i32);
                dnn::cudnnSetTensorNdDescriptor(*descriptor, kind, rank, dims, strides)
                    .result()
                    .or_failed_to("describe a tensor")?;
            }
            dnn::cudnnCreateFilterDescriptor(&mut plan.kernel).result().or_failed_to("describe a kernel")?;
            dnn::cudnnSetFilterNdDescriptor(
                plan.kernel,
                kind,
                match geometry.format {
                    MemoryFormat::Contiguous => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
                    MemoryFormat::ChannelsLast => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
                },
                geometry.kernel.len() as i32,
                geometry.kernel.as_ptr(),
            )
            .result()
            .or_failed_to("describe a kernel")?;
            dnn::cudnnCreateConvolutionDescriptor(&mut plan.window)
                .result()
                .or_failed_to("describe a window")?;
            dnn::cudnnSetConvolutionNdDescriptor(
                plan.window,
                spatial,
                geometry.pad.as_ptr(),
                geometry.stride.as_ptr(),
                geometry.dilation.as_ptr(),
                dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                compute,
            )
            .result()
            .or_failed_to("describe a window")?;
            dnn::cudnnSetConvolutionGroupCount(plan.window, geometry.groups)
                .result()
                .or_failed_to("describe groups")?;
            dnn::cudnnSetConvolutionMathType(plan.window, arithmetic)
                .result()
                .or_failed_to("choose arithmetic")?;
        }
        Ok(plan)
    }

    /// Measures all algorithms and returns the fastest deterministic one. Fourier transforms are excluded, because their
    /// rounding errors are too large.
    fn fastest(&self, device: &Device) -> Result<Option<i32>> {
        const MAX_RESULTS: usize = 10;
        let (mut found, handle) = (0i32, device.cudnn(0)?);
        macro_rules! best {
            ($find:ident, $perf:ident, $order:expr, $fourier:expr) => {{
                let mut results: Vec<dnn::$perf> = Vec::with_capacity(MAX_RESULTS);
                let (a, b, c) = $order;
                // SAFETY: the library writes at most as many results as there is room for, and says how many.
                unsafe {
                    let tried = dnn::$find(
                        handle,
                        a,
                        b,
                        self.window,
                        c,
                        MAX_RESULTS as i32,
                        &mut found,
                        results.as_mut_ptr(),
                    );
                    tried.result().or_failed_to("measure convolution algorithms")?;
                    results.set_len((found.max(0) as usize).min(MAX_RESULTS));
                }
                let usable = results.iter().filter(|r| {
                    r.status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                        && r.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC
                        && !$fourier.contains(&(r.algo as u32))
                });
                usable
                    .min_by(|a, b| a.time.total_cmp(&b.time))
                    .map(|r| encoded(r.algo as u32, r.mathType as u32))
            }};
        }
        let best = match self.direction {
            Direction::Forward => best!(
                cudnnFindConvolutionForwardAlgorithm,
                cudnnConvolutionFwdAlgoPerf_t,
                (self.input, self.kernel, self.result),
                [4u32, 5]
            ),
            Direction::BackwardData => best!(
                cudnnFindConvolutionBackwardDataAlgorithm,
                cudnnConvolutionBwdDataAlgoPerf_t,
                (self.kernel, self.result, self.input),
                [2u32, 3]
            ),
            Direction::BackwardFilter => best!(
                cudnnFindConvolutionBackwardFilterAlgorithm,
                cudnnConvolutionBwdFilterAlgoPerf_t,
                (self.input, self.result, self.kernel),
                [2u32, 6]
            ),
        };
        Ok(best)
    }

    /// Sets the algorithm `chosen` and the size of its workspace.
    fn set_algorithm(&mut self, device: &Device, chosen: i32) -> Result<()> {
        let arithmetic = match if self.exact { 3 } else { chosen % 16 } {
            1 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
            2 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
            3 => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
            _ => dnn::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        };
        self.algorithm = chosen / 16;
        let (handle, bytes) = (device.cudnn(0)?, &mut self.workspace);
        // SAFETY: `described` has set the descriptors.
        unsafe {
            dnn::cudnnSetConvolutionMathType(self.window, arithmetic)
                .result()
                .or_failed_to("choose arithmetic")?;
            match self.direction {
                Direction::Forward => dnn::cudnnGetConvolutionForwardWorkspaceSize(
                    handle,
                    self.input,
                    self.kernel,
                    self.window,
                    self.result,
                    forward(self.algorithm)?,
                    bytes,
                ),
                Direction::BackwardData => dnn::cudnnGetConvolutionBackwardDataWorkspaceSize(
                    handle,
                    self.kernel,
                    self.result,
                    self.window,
                    self.input,
                    backward_data(self.algorithm)?,
                    bytes,
                ),
                Direction::BackwardFilter => dnn::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                    handle,
                    self.input,
                    self.result,
                    self.window,
                    self.kernel,
                    backward_filter(self.algorithm)?,
                    bytes,
                ),
            }
            .result()
            .or_failed_to("plan a convolution")
        }
    }
}

fn unknown() -> Error {
    Error::argument("unknown convolution algorithm")
}

fn forward(number: i32) -> Result<dnn::cudnnConvolutionFwdAlgo_t> {
    use dnn::cudnnConvolutionFwdAlgo_t as Algorithm;
    Ok(match number {
        0 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
        1 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
        2 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
        3 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
        6 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
        7 => Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        _ => return Err(unknown()),
    })
}

fn backward_data(number: i32) -> Result<dnn::cudnnConvolutionBwdDataAlgo_t> {
    use dnn::cudnnConvolutionBwdDataAlgo_t as Algorithm;
    Ok(match number {
        1 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
        4 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
        5 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
        _ => return Err(unknown()),
    })
}

fn backward_filter(number: i32) -> Result<dnn::cudnnConvolutionBwdFilterAlgo_t> {
    use dnn::cudnnConvolutionBwdFilterAlgo_t as Algorithm;
    Ok(match number {
        1 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
        4 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
        5 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
        _ => return Err(unknown()),
    })
}

impl Drop for CudnnPlan {
    fn drop(&mut self) {
        // SAFETY: each was created by the library, or is null, and is destroyed once.
        unsafe {
            if !self.input.is_null() {
                let _ = dnn::cudnnDestroyTensorDescriptor(self.input);
            }
            if !self.result.is_null() {
                let _ = dnn::cudnnDestroyTensorDescriptor(self.result);
            }
            if !self.kernel.is_null() {
                let _ = dnn::cudnnDestroyFilterDescriptor(self.kernel);
            }
            if !self.window.is_null() {
                let _ = dnn::cudnnDestroyConvolutionDescriptor(self.window);
            }
        }
    }
}

impl Convolution {
    pub(super) fn enqueue(&self, library: dnn::cudnnHandle_t) -> Result<()> {
        let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
        let scalar = |index: usize| match self.plan.double {
            true => (&raw const double[index]).cast::<c_void>(),
            false => (&raw const single[index]).cast::<c_void>(),
        };
        let (one, zero, plan, handle) = (scalar(0), scalar(1), &self.plan, library);
        let Tensors { input, kernel, result } = self.tensors;
        let (workspace, bytes) = (self.workspace as *mut c_void, plan.workspace);
        // SAFETY: the tensors are memory of the program that owns this convolution, as large as the descriptors say.
        unsafe {
            match plan.direction {
                Direction::Forward => dnn::cudnnConvolutionForward(
                    handle,
                    one,
                    plan.input,
                    input as *const c_void,
                    plan.kernel,
                    kernel as *const c_void,
                    plan.window,
                    forward(plan.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    plan.result,
                    result as *mut c_void,
                ),
                Direction::BackwardData => dnn::cudnnConvolutionBackwardData(
                    handle,
                    one,
                    plan.kernel,
                    kernel as *const c_void,
                    plan.result,
                    result as *const c_void,
                    plan.window,
                    backward_data(plan.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    plan.input,
                    input as *mut c_void,
                ),
                Direction::BackwardFilter => dnn::cudnnConvolutionBackwardFilter(
                    handle,
                    one,
                    plan.input,
                    input as *const c_void,
                    plan.result,
                    result as *const c_void,
                    plan.window,
                    backward_filter(plan.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    plan.kernel,
                    kernel as *mut c_void,
                ),
            }
            .result()
            .or_failed_to("convolve")
        }
    }
}
