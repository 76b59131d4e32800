//! How much memory a program may hold. Unless told otherwise it is a share of what the machine, the container and the process
//! have free when the program is compiled, so that a network can neither exhaust the machine nor have the process killed.

use std::sync::atomic::{AtomicUsize, Ordering};

use monosplit_graph::{Error, Hint, Result};

/// The share of free memory that a program may hold, in quarters.
const QUARTERS: usize = 3;
/// The budget where the system does not say what is free; half of what can be addressed where that is less.
const UNKNOWN: usize = if usize::BITS > 34 { (1u64 << 34) as usize } else { usize::MAX / 2 };

/// The budget of all engines that have none of their own; 0 if it is measured.
static PROCESS_LIMIT: AtomicUsize = AtomicUsize::new(0);

/// What to do about a lack of memory.
pub(crate) const MEMORY: Hint =
    Hint::new("memory", "use a smaller batch or smaller samples, or raise the memory limit");

/// Sets the memory budget of all engines that were given none with [`Cpu::memory_limit`](crate::Cpu::memory_limit), for
/// programs that let their user choose it.
pub fn set_memory_limit(bytes: usize) {
    PROCESS_LIMIT.store(bytes.max(1), Ordering::Relaxed);
}

/// The bytes a program may hold if its engine was given no limit: what [`set_memory_limit`] was told, or else three quarters of
/// what is free now, and the bytes that programs hold already.
pub(crate) fn limit_beside(held: usize) -> usize {
    match PROCESS_LIMIT.load(Ordering::Relaxed) {
        0 => free::bytes().map_or(UNKNOWN, |bytes| (bytes / 4 * QUARTERS).saturating_add(held)),
        bytes => bytes,
    }
}

/// The bytes that programs may hold together on a card that has `free` bytes free beside the `held` bytes they hold already.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) fn limit_on_card(free: usize, held: usize) -> usize {
    match PROCESS_LIMIT.load(Ordering::Relaxed) {
        0 => (free / 4 * QUARTERS).saturating_add(held),
        bytes => bytes.min(free.saturating_add(held)),
    }
}

/// An error if `bytes` more on a card that holds `held` bytes are more than [`set_memory_limit`] was told.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) fn check_card_memory(bytes: usize, held: usize) -> Result<()> {
    let limit = PROCESS_LIMIT.load(Ordering::Relaxed);
    if limit == 0 || held.saturating_add(bytes) <= limit {
        return Ok(());
    }
    let (bytes, held) = (Size(Some(bytes)), Size(Some(held)));
    Err(over_budget(&format!("the GPU would hold {bytes} beside {held}"), limit))
}

/// The same where nothing is held yet.
pub fn memory_limit() -> usize {
    limit_beside(0)
}

/// An error if `elements` elements of four bytes are more than a program may hold. Whoever is about to allocate as much as a
/// file says asks first.
pub fn check_memory(elements: Option<usize>, what: &str) -> Result<()> {
    let limit = memory_limit();
    let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<f32>()));
    if bytes.is_some_and(|bytes| bytes <= limit) {
        return Ok(());
    }
    Err(over_budget(&format!("{what} takes {}", Size(bytes)), limit))
}

/// The error of something that takes more than `limit`.
pub(crate) fn over_budget(what: &str, limit: usize) -> Error {
    Error::memory(format!("{what}, more than the memory budget of {}", Size(Some(limit)))).hint(MEMORY)
}

/// A number of bytes in words; `None` where it is more than can be counted.
pub(crate) struct Size(pub(crate) Option<usize>);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None | Some(usize::MAX) => f.write_str("more than can be addressed"),
            Some(bytes) if bytes < 10 << 20 => write!(f, "{} KiB", bytes.div_ceil(1 << 10)),
            Some(bytes) if bytes >> 30 < 10 => write!(f, "{} MiB", bytes.div_ceil(1 << 20)),
            Some(bytes) => write!(f, "{} GiB", bytes.div_ceil(1 << 30)),
        }
    }
}

/// What Linux says is free.
#[cfg(target_os = "linux")]
mod free {
    use std::fs::read_to_string;
    use std::path::Path;

    /// The least of what the machine, every control group around the process, and its address space have left.
    pub(super) fn bytes() -> Option<usize> {
        let machine = read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemAvailable:"));
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = groups.lines().filter_map(|line| group(Path::new("/sys/fs/cgroup"), line)).min();
        machine.into_iter().chain(groups).chain(address_space()).min()
    }

    /// The number of bytes after `key` in a file of `key   number kB` lines.
    pub(super) fn kilobytes(text: &str, key: &str) -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1 << 10)
    }

    /// What the group named by a line of `/proc/self/cgroup`, and those around it, have left; `None` where they have no limit.
    pub(super) fn group(mount: &Path, line: &str) -> Option<usize> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (root, limit, used) = match controllers {
            "" => (mount.to_path_buf(), "memory.max", "memory.current"),
            list if list.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        let inner = root.join(path);
        let left = |folder: &Path| {
            let number = |name: &str| read_to_string(folder.join(name)).ok()?.trim().parse::<usize>().ok();
            // Pages of files can be given back, and the system counts them as used.
            let cached = read_to_string(folder.join("memory.stat")).ok().and_then(|text| inactive(&text));
            let used = number(used)?.saturating_sub(cached.unwrap_or(0));
            Some(number(limit)?.saturating_sub(used))
        };
        inner.ancestors().take_while(|folder| folder.starts_with(&root)).filter_map(left).min()
    }

    fn inactive(text: &str) -> Option<usize> {
        let find = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        find("total_inactive_file ").or_else(|| find("inactive_file "))
    }

    /// What the process may still map, where that is limited.
    fn address_space() -> Option<usize> {
        let limits = read_to_string("/proc/self/limits").ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let limit = line.split_whitespace().next()?.parse::<usize>().ok()?;
        let status = read_to_string("/proc/self/status").ok()?;
        Some(limit.saturating_sub(kilobytes(&status, "VmSize:")?))
    }
}

/// A page of WebAssembly counts its own memory, which grows up to what 32 bits address.
#[cfg(target_arch = "wasm32")]
mod free {
    /// The bytes of a page of memory.
    const PAGE: usize = 1 << 16;

    pub(super) fn bytes() -> Option<usize> {
        Some(usize::MAX - std::arch::wasm32::memory_size::<0>() * PAGE)
    }
}

#[cfg(not(any(target_os = "linux", target_arch = "wasm32")))]
mod free {
    pub(super) fn bytes() -> Option<usize> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use monosplit_testing::ScratchFolder;

    use super::*;

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        let text = "MemTotal:       24582508 kB\nMemFree:         100 kB\nMemAvailable:   23165340 kB\n";
        assert_eq!(free::kilobytes(text, "MemAvailable:"), Some(23_165_340 << 10));
        assert_eq!(free::kilobytes(text, "SwapFree:"), None);
        assert!(memory_limit() > 1 << 20);
    }

    #[test]
    fn the_tightest_group_decides() {
        let folder = ScratchFolder::new();
        std::fs::create_dir_all(folder.path("outer/inner")).unwrap();
        std::fs::create_dir_all(folder.path("memory/a")).unwrap();
        folder.write("outer/memory.max", "1000\n");
        folder.write("outer/memory.current", "700\n");
        folder.write("outer/memory.stat", "anon 600\ninactive_file 100\n");
        folder.write("outer/inner/memory.max", "max\n");
        folder.write("outer/inner/memory.current", "500\n");
        assert_eq!(free::group(folder.root(), "0::/outer/inner"), Some(400));
        folder.write("outer/inner/memory.max", "600\n");
        assert_eq!(free::group(folder.root(), "0::/outer/inner"), Some(100));
        folder.write("memory/a/memory.limit_in_bytes", "900\n");
        folder.write("memory/a/memory.usage_in_bytes", "300\n");
        assert_eq!(free::group(folder.root(), "4:cpu,memory:/a"), Some(600));
        assert_eq!(free::group(folder.root(), "4:cpu:/a"), None);
    }

    #[test]
    fn what_a_file_asks_for_is_checked_before_it_is_allocated() {
        check_memory(Some(1000), "a sample").unwrap();
        for elements in [None, Some(usize::MAX), Some(1 << 60)] {
            let error = check_memory(elements, "a sample").unwrap_err();
            assert_eq!(error.kind(), monosplit_graph::ErrorKind::Memory);
            assert!(error.to_string().contains("a sample takes"), "{error}");
        }
    }
}
