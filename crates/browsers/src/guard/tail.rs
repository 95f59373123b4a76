//! The last of what a browser printed, for error messages.

use std::io::Read;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How much is kept.
const TAIL_BYTES: usize = 8 << 10;

/// Reads a pipe to its end on a thread of its own, so that the browser never waits to print.
pub(super) struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    pub(super) fn follow(mut pipe: ChildStderr) -> Tail {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                push(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &buffer[..count]);
            }
        });
        Tail { bytes, reader }
    }

    /// What was printed last. `is_over` says that nobody can print any more, and then everything
    /// is waited for.
    pub(super) fn text(self, is_over: bool) -> String {
        if is_over {
            let _ = self.reader.join();
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn push(kept: &mut Vec<u8>, more: &[u8]) {
    kept.extend_from_slice(more);
    let surplus = kept.len().saturating_sub(TAIL_BYTES);
    kept.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_and_no_more() {
        let mut kept = Vec::new();
        push(&mut kept, b"short");
        assert_eq!(kept, b"short");
        push(&mut kept, &[b'x'; TAIL_BYTES]);
        push(&mut kept, b"end");
        assert_eq!(kept.len(), TAIL_BYTES);
        assert!(kept.ends_with(b"xend"));
    }
}
