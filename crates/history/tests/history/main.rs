//! Histories in real files, written and read by real processes.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod samples;

mod datasets;
mod kept;
mod processes;
mod versions;
