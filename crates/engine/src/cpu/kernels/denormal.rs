//! Numbers that are too small to be normal. Processors compute with them up to a hundred times more slowly, and training
//! is full of them: gradients of what is already known, and their squares. Threads can be told to take them for zero.
#![allow(unsafe_code)]

/// Makes this thread read and write numbers too small to be normal as zeros from now on, where the machine can.
pub(crate) fn flush_in_this_thread() {
    #[cfg(target_arch = "x86_64")]
    {
        /// Results that are not normal become zero, and so do operands.
        const FLUSH: u32 = 1 << 15 | 1 << 6;
        let mut control = 0u32;
        // SAFETY: the instructions store and load the control register of this thread at a number of its size; no
        // rounding, mask or flag is changed, and the bits set are ones that every machine of this kind has.
        unsafe {
            std::arch::asm!("stmxcsr [{0}]", in(reg) &mut control, options(nostack));
            control |= FLUSH;
            std::arch::asm!("ldmxcsr [{0}]", in(reg) &control, options(nostack));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        const FLUSH: u64 = 1 << 24;
        let mut control: u64;
        // SAFETY: reads and writes the control register of this thread; only the bit that flushes is changed.
        unsafe {
            std::arch::asm!("mrs {0}, fpcr", out(reg) control, options(nostack));
            control |= FLUSH;
            std::arch::asm!("msr fpcr, {0}", in(reg) control, options(nostack));
        }
    }
}
