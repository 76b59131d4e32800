//! Denormal numbers: those too small to have a normal exponent. Processors compute with them up to a hundred times more slowly, and
//! training is full of them (gradients of what is already learned, and their squares). A thread can treat them as zero.
#![allow(unsafe_code)]

/// Sets whether the calling thread reads and writes denormal numbers as zeros, where the machine can.
pub(crate) fn flush_in_this_thread(flush: bool) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        /// Flush results to zero, and take operands for zero.
        const FLUSH: u32 = 1 << 15 | 1 << 6;
        let mut control = 0u32;
        // SAFETY: the instructions store and load the control register of this thread at a number of its size. Only the two bits
        // above change, which every x86-64 processor has.
        unsafe {
            std::arch::asm!("stmxcsr [{0}]", in(reg) &mut control, options(nostack));
            control = if flush { control | FLUSH } else { control & !FLUSH };
            std::arch::asm!("ldmxcsr [{0}]", in(reg) &control, options(nostack));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        const FLUSH: u64 = 1 << 24;
        let mut control: u64;
        // SAFETY: reads and writes the control register of this thread; only the flush bit changes.
        unsafe {
            std::arch::asm!("mrs {0}, fpcr", out(reg) control, options(nostack));
            control = if flush { control | FLUSH } else { control & !FLUSH };
            std::arch::asm!("msr fpcr, {0}", in(reg) control, options(nostack));
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = flush;
}
