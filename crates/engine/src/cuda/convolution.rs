//! Convolutions, their transposes and the gradients of their kernels through cuDNN. The algorithm is the fastest of
//! those that give the same bits at every run; it is found by trying them once, and remembered.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys as dnn;
use monosplit_graph::{Error, Result};

use super::Math;
use super::device::{Checked, Device};
use super::order::Order;

/// Which of the three tensors of a convolution is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    /// The result: a convolution.
    Result,
    /// The input: its transpose.
    Input,
    /// The kernel: what its gradient is.
    Kernel,
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
    /// How the axes of all three lie in memory.
    pub(super) order: Order,
}

/// Where the three tensors lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors {
    pub(super) input: u64,
    pub(super) kernel: u64,
    pub(super) result: u64,
}

/// What a convolution is and how it is computed, without where.
pub(super) struct Choice {
    input: dnn::cudnnTensorDescriptor_t,
    kernel: dnn::cudnnFilterDescriptor_t,
    result: dnn::cudnnTensorDescriptor_t,
    window: dnn::cudnnConvolutionDescriptor_t,
    sought: Sought,
    algorithm: i32,
    /// Bytes it works in.
    pub(super) workspace: usize,
    double: bool,
    /// Whether factors may not be rounded.
    exact: bool,
}

/// A convolution ready to be computed.
pub(super) struct Convolution {
    pub(super) choice: Choice,
    pub(super) tensors: Tensors,
    pub(super) workspace: u64,
}

fn numbers(values: &[i32]) -> String {
    values.iter().map(|n| n.to_string()).collect::<Vec<_>>().join("x")
}

/// How an algorithm and the arithmetic it uses are one number in the cache.
fn joined(algorithm: u32, arithmetic: u32) -> i32 {
    (algorithm * 16 + arithmetic) as i32
}

impl Choice {
    /// Chooses how to compute `sought`. The caller has the card's turn.
    pub(super) fn new(device: &Arc<Device>, geometry: &Geometry, sought: Sought, math: Math) -> Result<Self> {
        let mut choice = Choice::described(geometry, sought, math)?;
        let key = format!(
            "{sought:?} {math:?} {} {} {} {} {} {}{}",
            numbers(&geometry.input),
            numbers(&geometry.kernel),
            numbers(&geometry.pad),
            numbers(&geometry.stride),
            numbers(&geometry.dilation),
            geometry.groups,
            if geometry.order == Order::ChannelsLast { " last" } else { "" }
        );
        let known = device.cache.algorithm(&key);
        // What a file says need not be true.
        if known.is_some_and(|chosen| choice.settle(device, chosen).is_ok()) {
            return Ok(choice);
        }
        match choice.fastest(device)? {
            Some(chosen) => {
                choice.settle(device, chosen)?;
                device.cache.keep_algorithm(&key, chosen);
            }
            // The plainest algorithm always sums in one order; that it was tried in need is not remembered.
            None => choice.settle(device, joined(if sought == Sought::Result { 0 } else { 1 }, 3))?,
        }
        Ok(choice)
    }

    fn described(geometry: &Geometry, sought: Sought, math: Math) -> Result<Self> {
        use dnn::cudnnDataType_t::{CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT};
        use dnn::cudnnMathType_t::{CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH};
        let mut choice = Choice {
            input: std::ptr::null_mut(),
            kernel: std::ptr::null_mut(),
            result: std::ptr::null_mut(),
            window: std::ptr::null_mut(),
            sought,
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
        // SAFETY: every descriptor is made before it is set, and destroyed with `choice`; arrays have the length named.
        unsafe {
            for (descriptor, dims) in
                [(&mut choice.input, &geometry.input), (&mut choice.result, &geometry.result)]
            {
                dnn::cudnnCreateTensorDescriptor(descriptor).result().or_say("describe a tensor")?;
                let lengths: Vec<usize> = dims.iter().map(|&length| length as usize).collect();
                let strides = geometry.order.strides(&lengths);
                let strides: Vec<i32> =
                    strides.into_iter().map(|stride| i32::try_from(stride).unwrap_or(i32::MAX)).collect();
                let (dims, strides, rank) = (dims.as_ptr(), strides.as_ptr(), dims.len() as i32);
                dnn::cudnnSetTensorNdDescriptor(*descriptor, kind, rank, dims, strides)
                    .result()
                    .or_say("describe a tensor")?;
            }
            dnn::cudnnCreateFilterDescriptor(&mut choice.kernel).result().or_say("describe a kernel")?;
            dnn::cudnnSetFilterNdDescriptor(
                choice.kernel,
                kind,
                match geometry.order {
                    Order::Counted => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
                    Order::ChannelsLast => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
                },
                geometry.kernel.len() as i32,
                geometry.kernel.as_ptr(),
            )
            .result()
            .or_say("describe a kernel")?;
            dnn::cudnnCreateConvolutionDescriptor(&mut choice.window).result().or_say("describe a window")?;
            dnn::cudnnSetConvolutionNdDescriptor(
                choice.window,
                spatial,
                geometry.pad.as_ptr(),
                geometry.stride.as_ptr(),
                geometry.dilation.as_ptr(),
                dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                compute,
            )
            .result()
            .or_say("describe a window")?;
            dnn::cudnnSetConvolutionGroupCount(choice.window, geometry.groups)
                .result()
                .or_say("describe groups")?;
            dnn::cudnnSetConvolutionMathType(choice.window, arithmetic)
                .result()
                .or_say("choose arithmetic")?;
        }
        Ok(choice)
    }

    /// Tries all algorithms; the fastest that is deterministic. Fourier transforms round too much to be asked.
    fn fastest(&self, device: &Device) -> Result<Option<i32>> {
        const MOST: usize = 10;
        let (mut found, handle) = (0i32, device.convolutions(0)?);
        macro_rules! best {
            ($find:ident, $perf:ident, $order:expr, $fourier:expr) => {{
                let mut results: Vec<dnn::$perf> = Vec::with_capacity(MOST);
                let (a, b, c) = $order;
                // SAFETY: the library writes at most as many results as there is room for, and says how many.
                unsafe {
                    let tried = dnn::$find(
                        handle,
                        a,
                        b,
                        self.window,
                        c,
                        MOST as i32,
                        &mut found,
                        results.as_mut_ptr(),
                    );
                    tried.result().or_say("try convolutions")?;
                    results.set_len((found.max(0) as usize).min(MOST));
                }
                let usable = results.iter().filter(|r| {
                    r.status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                        && r.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC
                        && !$fourier.contains(&(r.algo as u32))
                });
                usable
                    .min_by(|a, b| a.time.total_cmp(&b.time))
                    .map(|r| joined(r.algo as u32, r.mathType as u32))
            }};
        }
        // SAFETY: tensor and filter descriptors are opaque pointers of this library.
        let best = match self.sought {
            Sought::Result => best!(
                cudnnFindConvolutionForwardAlgorithm,
                cudnnConvolutionFwdAlgoPerf_t,
                (self.input, self.kernel, self.result),
                [4u32, 5]
            ),
            Sought::Input => best!(
                cudnnFindConvolutionBackwardDataAlgorithm,
                cudnnConvolutionBwdDataAlgoPerf_t,
                (self.kernel, self.result, self.input),
                [2u32, 3]
            ),
            Sought::Kernel => best!(
                cudnnFindConvolutionBackwardFilterAlgorithm,
                cudnnConvolutionBwdFilterAlgoPerf_t,
                (self.input, self.result, self.kernel),
                [2u32, 6]
            ),
        };
        Ok(best)
    }

    /// Takes the algorithm `chosen` and asks what memory it needs.
    fn settle(&mut self, device: &Device, chosen: i32) -> Result<()> {
        let arithmetic = match if self.exact { 3 } else { chosen % 16 } {
            1 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
            2 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
            3 => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
            _ => dnn::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        };
        self.algorithm = chosen / 16;
        let (handle, bytes) = (device.convolutions(0)?, &mut self.workspace);
        // SAFETY: the descriptors were set when this was made.
        unsafe {
            dnn::cudnnSetConvolutionMathType(self.window, arithmetic).result().or_say("choose arithmetic")?;
            match self.sought {
                Sought::Result => dnn::cudnnGetConvolutionForwardWorkspaceSize(
                    handle,
                    self.input,
                    self.kernel,
                    self.window,
                    self.result,
                    forward(self.algorithm)?,
                    bytes,
                ),
                Sought::Input => dnn::cudnnGetConvolutionBackwardDataWorkspaceSize(
                    handle,
                    self.kernel,
                    self.result,
                    self.window,
                    self.input,
                    backward(self.algorithm)?,
                    bytes,
                ),
                Sought::Kernel => dnn::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                    handle,
                    self.input,
                    self.result,
                    self.window,
                    self.kernel,
                    of_kernel(self.algorithm)?,
                    bytes,
                ),
            }
            .result()
            .or_say("plan a convolution")
        }
    }
}

fn unknown() -> Error {
    Error::argument("there is no such algorithm for a convolution")
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

fn backward(number: i32) -> Result<dnn::cudnnConvolutionBwdDataAlgo_t> {
    use dnn::cudnnConvolutionBwdDataAlgo_t as Algorithm;
    Ok(match number {
        1 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
        4 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
        5 => Algorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
        _ => return Err(unknown()),
    })
}

fn of_kernel(number: i32) -> Result<dnn::cudnnConvolutionBwdFilterAlgo_t> {
    use dnn::cudnnConvolutionBwdFilterAlgo_t as Algorithm;
    Ok(match number {
        1 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
        4 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
        5 => Algorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
        _ => return Err(unknown()),
    })
}

impl Drop for Choice {
    fn drop(&mut self) {
        // SAFETY: each was made by the library, or is null, and is destroyed once.
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
        let scalar = |index: usize| match self.choice.double {
            true => (&raw const double[index]).cast::<c_void>(),
            false => (&raw const single[index]).cast::<c_void>(),
        };
        let (one, zero, choice, handle) = (scalar(0), scalar(1), &self.choice, library);
        let Tensors { input, kernel, result } = self.tensors;
        let (workspace, bytes) = (self.workspace as *mut c_void, choice.workspace);
        // SAFETY: the tensors are memory of the program this belongs to, as large as the descriptors say.
        unsafe {
            match choice.sought {
                Sought::Result => dnn::cudnnConvolutionForward(
                    handle,
                    one,
                    choice.input,
                    input as *const c_void,
                    choice.kernel,
                    kernel as *const c_void,
                    choice.window,
                    forward(choice.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    choice.result,
                    result as *mut c_void,
                ),
                Sought::Input => dnn::cudnnConvolutionBackwardData(
                    handle,
                    one,
                    choice.kernel,
                    kernel as *const c_void,
                    choice.result,
                    result as *const c_void,
                    choice.window,
                    backward(choice.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    choice.input,
                    input as *mut c_void,
                ),
                Sought::Kernel => dnn::cudnnConvolutionBackwardFilter(
                    handle,
                    one,
                    choice.input,
                    input as *const c_void,
                    choice.result,
                    result as *const c_void,
                    choice.window,
                    of_kernel(choice.algorithm)?,
                    workspace,
                    bytes,
                    zero,
                    choice.kernel,
                    kernel as *mut c_void,
                ),
            }
            .result()
            .or_say("convolve")
        }
    }
}
