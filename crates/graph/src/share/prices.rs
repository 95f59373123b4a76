//! What a cut costs and what it saves, in one currency.

use crate::cost::NodeTotal;

/// The prices by which is decided what is worth computing once. The unit is one operation of
/// arithmetic; the rates are those of a processor that does 25 of them in a nanosecond and moves
/// 6 bytes. Accelerators do more of both, but not in very different proportions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Starting one more session: 10 microseconds.
    pub launch: u64,
    /// Moving a byte: what nodes read and write, and what crosses from one session to another.
    pub moved_byte: u64,
    /// Holding a byte of a weight once more. Memory is no time, so this is a judgement: a
    /// megabyte is worth about 40 microseconds of every run.
    pub weight_byte: u64,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices { launch: 250_000, moved_byte: 4, weight_byte: 1 }
    }
}

impl Prices {
    /// Everything that can be shared is: starting a session and moving data cost nothing.
    pub fn free() -> Prices {
        Prices { launch: 0, moved_byte: 0, weight_byte: 1 }
    }
    /// What computing a node once takes.
    pub(super) fn time(&self, total: &NodeTotal) -> u64 {
        total.flops.saturating_add(total.bytes_moved.saturating_mul(self.moved_byte))
    }
}
