//! Numbers in the precision that the engine computes in, so that values which are cut up and laid together between two runs are
//! not converted there and back.

use monosplit_graph::{Buffer, Data, Tensor};

/// Single or double precision.
pub(crate) trait Number: Copy + Send + Sync {
    /// Numbers as what a tensor holds.
    fn data(values: Vec<Self>) -> Data;
    /// The numbers a tensor held, if they are such.
    fn taken(data: Data) -> Option<Vec<Self>>;
    /// The numbers of a tensor.
    fn of(tensor: &Tensor) -> Buffer<Self>;
    /// One of an image's numbers.
    fn rounded(value: f64) -> Self;
}

impl Number for f32 {
    fn data(values: Vec<f32>) -> Data {
        values.into()
    }

    fn taken(data: Data) -> Option<Vec<f32>> {
        if let Data::F32(buffer) = data { Some(buffer.into_vec()) } else { None }
    }

    fn of(tensor: &Tensor) -> Buffer<f32> {
        tensor.to_f32()
    }

    fn rounded(value: f64) -> f32 {
        value as f32
    }
}

impl Number for f64 {
    fn data(values: Vec<f64>) -> Data {
        values.into()
    }

    fn taken(data: Data) -> Option<Vec<f64>> {
        if let Data::F64(buffer) = data { Some(buffer.into_vec()) } else { None }
    }

    fn of(tensor: &Tensor) -> Buffer<f64> {
        tensor.to_f64()
    }

    fn rounded(value: f64) -> f64 {
        value
    }
}
