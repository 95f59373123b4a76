//! How a workload is run, and what for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the models of a workload run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// All at once.
    Parallel,
    /// One after the other.
    Sequential,
    /// Groups of a few at once, one group after the other; inputs of one model in one run, where
    /// its graph allows that.
    Batched,
}

/// What a workload is run for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// All answers as soon as possible.
    #[default]
    Latency,
    /// As many answers a second as possible.
    Throughput,
    /// As little memory as possible.
    Memory,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Parallel, Strategy::Sequential, Strategy::Batched];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Parallel => "parallel",
            Strategy::Sequential => "sequential",
            Strategy::Batched => "batched",
        }
    }
}

impl Goal {
    /// All of them.
    pub const ALL: [Goal; 3] = [Goal::Latency, Goal::Throughput, Goal::Memory];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Latency => "latency",
            Goal::Throughput => "throughput",
            Goal::Memory => "memory",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        known.ok_or_else(|| {
            format!("`{text}` is not a strategy: use parallel, sequential or batched")
        })
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let known = Goal::ALL.into_iter().find(|goal| goal.name() == text);
        known.ok_or_else(|| format!("`{text}` is not a goal: use latency, throughput or memory"))
    }
}
