//! The record of a run: what was measured, on what, against which goal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

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
    /// The ids that this process measured. The others are from the file, where another process may
    /// have measured them again by now.
    #[serde(skip)]
    own: BTreeSet<String>,
}

/// One figure.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The id in the issue's table, with a part behind a dot where there are several.
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// What it was measured against.
    pub(crate) peer: String,
    /// What it has to be; empty for figures that are only reported.
    pub(crate) goal: String,
    pub(crate) holds: Option<bool>,
    /// The commit and the day it was measured at, since a record is put together by several runs.
    /// Rows of older records have neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<String>,
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
            own: BTreeSet::new(),
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
            commit: self.versions.get(machine::COMMIT).cloned(),
            date: Some(self.date.clone()),
        };
        println!("{}", row.line());
        // One of an earlier run may have been taken over when the record was saved in between.
        self.rows.retain(|earlier| earlier.id != row.id);
        self.own.insert(row.id.clone());
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

    /// Writes the record. Rows of the same suite, day and machine that this process did not measure
    /// stay as they are in the file: some take half an hour and are asked for by themselves, maybe
    /// while this process runs.
    pub(crate) fn save(&mut self) -> Result<PathBuf> {
        self.save_in(&workspace().join("benches/runs"))
    }

    fn save_in(&mut self, folder: &Path) -> Result<PathBuf> {
        // Nobody else reads or writes here until it is dropped.
        let turn =
            File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
        turn.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
        let (path, earlier) = self.place_in(folder)?;
        let failed = || format!("cannot write {}", path.display());
        self.rows.retain(|row| self.own.contains(&row.id));
        self.rows.extend(earlier.into_iter().filter(|row| !self.own.contains(&row.id)));
        self.rows.sort_by(|a, b| a.id.cmp(&b.id));
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        // Renamed, so that whoever is killed here leaves the record as it was.
        let new = path.with_extension("json.new");
        std::fs::write(&new, text).with_context(failed)?;
        std::fs::rename(&new, &path).with_context(failed)?;
        Ok(path)
    }

    /// The file of this suite, day and machine, and the rows that are in it. Another machine's stays as
    /// it is: figures of two machines in one record would be taken for those of one.
    fn place_in(&self, folder: &Path) -> Result<(PathBuf, Vec<Row>)> {
        let mut which = String::new();
        for next in 2.. {
            let path = folder.join(format!("{}-{}{which}.json", self.suite, self.date));
            let Ok(bytes) = std::fs::read(&path) else { return Ok((path, Vec::new())) };
            let earlier: Record = serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not a record; move it away", path.display()))?;
            if earlier.machine == self.machine {
                return Ok((path, earlier.rows));
            }
            which = format!("-{next}");
        }
        unreachable!("there are more numbers than files")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a process that runs at this commit on this machine.
    fn record(commit: &str, processor: &str) -> Record {
        let map = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        Record {
            suite: "pool".to_owned(),
            date: "2026-11-18".to_owned(),
            machine: map("processor", processor),
            versions: map(machine::COMMIT, commit),
            rows: Vec::new(),
            own: BTreeSet::new(),
        }
    }

    fn add(record: &mut Record, id: &str, value: f64) {
        record.add(id, "what", value, "ms", "a peer", Goal::Report);
    }

    /// Id, value and commit of each row in the file.
    fn saved(path: &Path) -> Vec<(String, f64, Option<String>)> {
        let record: Record = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        record.rows.into_iter().map(|row| (row.id, row.value, row.commit)).collect()
    }

    fn row(id: &str, value: f64, commit: &str) -> (String, f64, Option<String>) {
        (id.to_owned(), value, Some(commit.to_owned()))
    }

    #[test]
    fn two_processes_on_one_suite_keep_each_others_rows() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut two) = (record("aaa", "x"), record("bbb", "x"));
        add(&mut one, "L1", 1.0);
        one.save_in(folder.path()).unwrap();
        add(&mut two, "L2", 2.0);
        // From now on it has L1 too, but that is not its own.
        two.save_in(folder.path()).unwrap();
        add(&mut one, "L1", 3.0);
        add(&mut one, "L3", 3.0);
        one.save_in(folder.path()).unwrap();
        let path = two.save_in(folder.path()).unwrap();
        let both = [row("L1", 3.0, "aaa"), row("L2", 2.0, "bbb"), row("L3", 3.0, "aaa")];
        assert_eq!(saved(&path), both);
        // What it measures itself replaces what is there.
        add(&mut two, "L1", 4.0);
        let path = two.save_in(folder.path()).unwrap();
        assert_eq!(saved(&path)[0], row("L1", 4.0, "bbb"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn many_at_the_same_time_lose_no_row() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let folder = folder.path();
                scope.spawn(move || {
                    let mut record = record("aaa", "x");
                    for part in 0..8 {
                        add(&mut record, &format!("L{number}.{part}"), 1.0);
                        record.save_in(folder).unwrap();
                    }
                });
            }
        });
        let path = record("aaa", "x").save_in(folder.path()).unwrap();
        assert_eq!(saved(&path).len(), 64);
    }

    #[test]
    fn the_record_of_another_machine_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (mut here, mut there) = (record("aaa", "x"), record("aaa", "y"));
        add(&mut there, "L1", 1.0);
        let theirs = there.save_in(folder.path()).unwrap();
        add(&mut here, "L2", 2.0);
        let ours = here.save_in(folder.path()).unwrap();
        assert_eq!(ours, folder.path().join("pool-2026-11-18-2.json"));
        assert_eq!(saved(&ours), [row("L2", 2.0, "aaa")]);
        assert_eq!(saved(&theirs), [row("L1", 1.0, "aaa")]);
    }

    #[test]
    fn records_from_before_rows_had_a_commit_are_read_and_nothing_is_made_up_for_them() {
        for entry in std::fs::read_dir(workspace().join("benches/runs")).unwrap() {
            let path = entry.unwrap().path();
            assert!(!saved(&path).is_empty(), "{}", path.display());
        }
        let folder = tempfile::tempdir().unwrap();
        let mut new = record("bbb", "AMD EPYC");
        let old = r#"{"id":"L1","what":"","value":1.0,"unit":"","peer":"","goal":"","holds":null}"#;
        let machine = r#"{"processor":"AMD EPYC"}"#;
        let text = format!(
            r#"{{"suite":"pool","date":"{}","machine":{machine},"versions":{{}},"rows":[{old}]}}"#,
            new.date
        );
        std::fs::write(folder.path().join("pool-2026-11-18.json"), text).unwrap();
        add(&mut new, "L2", 2.0);
        let path = new.save_in(folder.path()).unwrap();
        assert_eq!(saved(&path), [("L1".to_owned(), 1.0, None), row("L2", 2.0, "bbb")]);
    }

    #[test]
    fn what_is_no_record_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool-2026-11-18.json");
        std::fs::write(&path, "half a rec").unwrap();
        let error = record("aaa", "x").save_in(folder.path()).unwrap_err();
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half a rec");
    }
}
