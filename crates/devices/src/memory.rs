//! How much memory this process holds.

/// Memory of this process, from the kernel's account of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Pages that no other process has: what ending this process would free, file maps included.
    pub private_bytes: u64,
    /// Private pages that are not a copy of a file, so that the kernel cannot drop them.
    pub anonymous_bytes: u64,
}

/// Measures this process. `None` where the system does not tell.
pub fn process_memory() -> Option<ProcessMemory> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let bytes = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(ProcessMemory {
        private_bytes: bytes("Private_Clean")? + bytes("Private_Dirty")?,
        anonymous_bytes: bytes("Anonymous")?,
    })
}

/// Returns memory to the system that was freed. Allocators keep some for later, and glibc's keeps
/// as much as a whole model by chance.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "a call of the C library")]
        // SAFETY: the call has no preconditions and only touches memory that is free.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Has large blocks come from the system and go back to it. Left alone, glibc raises the size from
/// which it does so up to 32 MB, and each thread's heap then keeps what the largest block left
/// behind (measured: a second session of a model took 3.7 MB instead of 1.2).
pub(crate) fn keep_large_blocks_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "a call of the C library")]
        // SAFETY: the call sets a limit for allocations to come, to what it is at the start.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_shows() {
        let before = process_memory().unwrap();
        let buffer = vec![1u8; 64 << 20];
        let after = process_memory().unwrap();
        assert!(after.anonymous_bytes >= before.anonymous_bytes + (60 << 20));
        assert_eq!(buffer[buffer.len() - 1], 1);
    }
}
