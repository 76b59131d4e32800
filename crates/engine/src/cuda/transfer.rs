//! The types that may be copied between host and device memory, and those that may be passed to a kernel.

use super::kernel_parameters::{Axes, Divisor, Margins, Pool, Reduction, Strides};

/// Types that may be copied between host and device memory byte for byte. Sealed: nothing outside this file implements it.
///
/// # Safety
/// The type has no padding, and every bit pattern is one of its values.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers and floats have no padding, and every bit pattern is a value.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}

/// Types that a kernel takes by value.
///
/// # Safety
/// The type has the layout of the kernel's parameter: it is a number, or a `#[repr(C)]` struct with the fields of the
/// struct of the same name in `prelude.cu` or `kernels.cu`. It is aligned to 8 bytes at most.
pub(super) unsafe trait KernelArgument: Copy {}

// SAFETY: numbers have the layout of C's.
unsafe impl<T: Plain> KernelArgument for T {}
// SAFETY: `#[repr(C)]`, with the fields of the CUDA struct.
unsafe impl KernelArgument for Divisor {}
// SAFETY: as above.
unsafe impl KernelArgument for Axes {}
// SAFETY: as above.
unsafe impl KernelArgument for Strides {}
// SAFETY: as above.
unsafe impl KernelArgument for Margins {}
// SAFETY: as above.
unsafe impl KernelArgument for Pool {}
// SAFETY: as above.
unsafe impl KernelArgument for Reduction {}

/// The bytes of plain values.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so all `size_of_val` bytes are initialised; the borrow is the same.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of truth values, each 0 or 1.
pub(super) fn bool_bytes(values: &[bool]) -> &[u8] {
    // SAFETY: a `bool` is one initialised byte. Nothing writes through the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

/// The first `count` values in `bytes`, or `None` if there are not as many.
pub(super) fn values_from<T: Plain>(bytes: &[u8], count: usize) -> Option<Vec<T>> {
    let length = count.checked_mul(size_of::<T>()).filter(|&length| length <= bytes.len())?;
    let mut values: Vec<T> = Vec::with_capacity(count);
    // SAFETY: `bytes` holds at least `length` bytes and the vector has room for `count` values, which is as many bytes.
    // Every bit pattern is a value, so all `count` of them are initialised.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), length);
        values.set_len(count);
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_through_bytes() {
        let values = [1.5f64, -0.0, f64::NAN, f64::MAX];
        let back = values_from::<f64>(bytes_of(&values), 4).unwrap();
        assert!(values.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!(values_from::<i64>(&bytes_of(&[7i64, 8, 9])[8..], 2).unwrap(), [8, 9]);
        assert_eq!(bool_bytes(&[true, false]), [1, 0]);
    }

    #[test]
    fn too_few_bytes_give_no_values() {
        assert!(values_from::<f64>(&[0; 15], 2).is_none());
        assert!(values_from::<f64>(&[0; 15], usize::MAX).is_none());
    }
}
