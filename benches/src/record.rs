//! The record of a run: what was measured, on what, against which goal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{self, workspace};

/// A suite's rows and the machine they were measured on.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    suite: String,
    date: String,
    machine: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    rows: Vec<Row>,
}

/// One figure.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The id in the table, with a part behind a dot where there are several.
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// What it was measured against.
    pub(crate) peer: String,
    /// What it has to be; empty for figures that are only reported.
    pub(crate) goal: String,
    pub(crate) holds: Option<bool>,
}

/// A bound on a figure.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    Report,
}

impl Record {
    /// Starts a record.
    pub(crate) fn open(suite: &str) -> Result<Record> {
        Ok(Record {
            suite: suite.to_owned(),
            date: machine::date()?,
            machine: machine::machine(),
            versions: machine::versions()?,
            rows: Vec::new(),
        })
    }

    /// Notes a version that only this suite has to do with.
    pub(crate) fn version(&mut self, of: &str, version: &str) {
        self.versions.insert(of.to_owned(), version.to_owned());
    }

    /// Adds a figure and says it at once.
    pub(crate) fn add(
        &mut self,
        id: &str,
        what: &str,
        value: f64,
        unit: &str,
        peer: &str,
        goal: Goal,
    ) {
        // JSON has no infinity.
        let value = value.clamp(f64::MIN, f64::MAX);
        let (goal, holds) = match goal {
            Goal::AtMost(bound) => (format!("≤ {bound}"), Some(value <= bound)),
            Goal::AtLeast(bound) => (format!("≥ {bound}"), Some(value >= bound)),
            Goal::Report => (String::new(), None),
        };
        let row = Row {
            id: id.to_owned(),
            what: what.to_owned(),
            // Six digits are more than any of this is good for.
            value: format!("{value:.6e}").parse().unwrap_or(value),
            unit: unit.to_owned(),
            peer: peer.to_owned(),
            goal,
            holds,
        };
        println!("{}", row.line());
        // One of an earlier run may have been taken over when the record was saved in between.
        self.rows.retain(|earlier| earlier.id != row.id);
        self.rows.push(row);
    }

    /// Prints all rows, those that do not hold last, where they are seen.
    pub(crate) fn print(&self) {
        println!("\n{} on {}", self.suite, self.date);
        let (missed, held): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.holds == Some(false));
        held.iter().chain(&missed).for_each(|row| println!("{}", row.line()));
        if !missed.is_empty() {
            println!("{} of {} rows do not hold", missed.len(), self.rows.len());
        }
    }

    /// Writes the record. Rows of the same suite, day and machine that were not measured again
    /// are kept: some take half an hour and are asked for by themselves.
    pub(crate) fn save(&mut self) -> Result<PathBuf> {
        let path = self.path();
        if let Ok(bytes) = std::fs::read(&path) {
            let earlier: Record = serde_json::from_slice(&bytes).context("an earlier record")?;
            if earlier.machine == self.machine {
                let again = |row: &Row| self.rows.iter().any(|new| new.id == row.id);
                let kept: Vec<Row> = earlier.rows.into_iter().filter(|row| !again(row)).collect();
                self.rows.extend(kept);
            }
        }
        self.rows.sort_by(|a, b| a.id.cmp(&b.id));
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn path(&self) -> PathBuf {
        workspace().join("benches/runs").join(format!("{}-{}.json", self.suite, self.date))
    }
}

impl Row {
    fn line(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "reported",
        };
        let small = self.value != 0.0 && self.value.abs() < 1e-3;
        let value =
            if small { format!("{:.1e}", self.value) } else { format!("{:.4}", self.value) };
        let value = format!("{value} {}", self.unit);
        format!("{:<16} {:<62} {value:>18}  {:<10} {verdict}", self.id, self.what, self.goal)
    }
}
