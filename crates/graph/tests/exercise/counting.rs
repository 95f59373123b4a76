//! An allocator that counts, so that tests can say how much memory something took.
//!
//! It counts for each thread on its own: the crate under test starts none, so what other tests
//! do at the same time does not show.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub(crate) struct Counting;

/// Runs something and gives the most bytes that were allocated at once during it, above those
/// that were there before.
pub(crate) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = run();
    (result, (PEAK.get() - before).unsigned_abs())
}

fn add(bytes: usize) {
    HELD.set(HELD.get() + bytes as isize);
    PEAK.set(PEAK.get().max(HELD.get()));
}

fn subtract(bytes: usize) {
    HELD.set(HELD.get() - bytes as isize);
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // At the worst moment both are there.
        add(new_size);
        subtract(layout.size());
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
