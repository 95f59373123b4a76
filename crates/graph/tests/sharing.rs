//! Share plans: what they share, what they must not, and that no answer changes.
//!
//! Every plan is put together again and compared with the whole model, by structure and, where
//! the testkit can evaluate it, by bits.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "sharing/cases.rs"]
mod cases;
#[path = "sharing/check.rs"]
mod check;
#[path = "sharing/explain.rs"]
mod explain;
#[path = "sharing/families.rs"]
mod families;
#[path = "sharing/prices.rs"]
mod prices;
#[path = "sharing/random.rs"]
mod random;
mod samples;
