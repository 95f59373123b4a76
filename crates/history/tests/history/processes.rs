//! What happens to a history when processes are killed, get into each other's way, or find no room.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use holdfast_history::{History, Writer, WriterOptions};
use holdfast_predict::Recorder;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::samples::*;

const ROLE: &str = "HOLDFAST_TEST_ROLE";
const FILE: &str = "HOLDFAST_TEST_FILE";

/// Records that a child acknowledges before it is killed.
const ACKNOWLEDGED: u64 = 2000;

/// This very program in another role. Ended and reaped when it is dropped.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
}

impl Other {
    /// With `soft_limit`, no file may grow beyond so many blocks of 1024 bytes, until the limit is
    /// lifted.
    fn start(role: &str, file: &Path, soft_limit: Option<u32>) -> Other {
        let limit = soft_limit.map_or(String::new(), |blocks| format!("ulimit -S -f {blocks};"));
        let script = format!(
            "trap '' XFSZ; {limit} exec \"$0\" --ignored --exact processes::other --nocapture"
        );
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg(program).env(ROLE, role).env(FILE, file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stdin = child.stdin.take();
        Other { child, lines, stdin }
    }

    /// The rest of the next line that begins with this.
    fn says(&mut self, word: &str) -> String {
        let mut heard = Vec::new();
        for line in self.lines.by_ref().map(Result::unwrap) {
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            heard.push(line);
        }
        panic!("never said {word}: {heard:?}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what other tests start.
#[test]
#[ignore = "started by other tests"]
fn other() {
    let (Ok(role), Some(file)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let file = PathBuf::from(file);
    // The test harness writes its own words before, without a line break.
    println!();
    match role.as_str() {
        "acknowledge" => acknowledge(&file),
        "hold" => hold(&file),
        "fill" => fill(&file),
        other => panic!("no such role: {other}"),
    }
}

fn acknowledge(file: &Path) {
    let writer = Writer::start(History::at(file), WriterOptions::default());
    (0..ACKNOWLEDGED).for_each(|_| writer.record(one("acknowledged")));
    writer.flush().unwrap();
    println!("acknowledged");
    // So that it is killed in the middle of writing.
    loop {
        writer.record(one("more"));
        std::thread::yield_now();
    }
}

fn hold(file: &Path) {
    let _history = History::open(file).unwrap();
    println!("held");
    // Until the other side lets go.
    let _ = std::io::stdin().read(&mut [0]);
}

fn fill(file: &Path) {
    let writer = Writer::start(History::at(file), WriterOptions::default());
    let failed = (0..10_000).find_map(|number: u64| {
        // Nothing that could be compressed.
        let name = holdfast_graph::Digest::of(&number.to_le_bytes()).to_string();
        (0..100).for_each(|part| writer.record(one(&format!("{name}{part}"))));
        writer.flush().err()
    });
    println!("failed {}", failed.unwrap());
    let counts = writer.kept();
    assert!(counts.failed > 0 && counts.dropped == 0, "{counts:?}");
    // Someone makes room.
    setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
    writer.flush().unwrap();
    println!("written {}", writer.kept().written);
}

fn answered(history: &History, only: impl Fn(&str) -> bool) -> u64 {
    let summaries = history.overview(1).unwrap().inferences;
    summaries.iter().filter(|of| only(&of.model)).map(|of| of.answered).sum()
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.duckdb");
    for round in 1..=3 {
        let mut other = Other::start("acknowledge", &path, None);
        other.says("acknowledged");
        drop(other);
        let history = History::open(&path).unwrap();
        let kept = answered(&history, |model| model == "acknowledged");
        assert_eq!(kept, round * ACKNOWLEDGED, "round {round}");
    }
}

#[test]
fn a_file_that_another_process_holds_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.duckdb");
    let mut other = Other::start("hold", &path, None);
    other.says("held");
    let error = History::open(&path).unwrap_err();
    assert!(error.is_held() && error.to_string().contains("in use by another process"), "{error}");

    let history = History::at(&path);
    let writer = Writer::start(history.clone(), WriterOptions::default());
    writer.record(one("mini"));
    let refused = writer.flush().unwrap_err().to_string();
    assert!(refused.contains("in use by another process"), "{refused}");
    let counts = writer.kept();
    assert!(counts.failed > 0 && counts.dropped == 0 && counts.written == 0, "{counts:?}");

    drop(other.stdin.take());
    assert!(other.child.wait().unwrap().success());
    writer.flush().unwrap();
    assert_eq!(answered(&history, |_| true), 1);
}

#[test]
fn a_full_disk_ends_nothing_and_loses_nothing_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.duckdb");
    let mut other = Other::start("fill", &path, Some(700));
    let failed = other.says("failed");
    assert!(failed.contains("cannot write") || failed.contains("cannot open"), "{failed}");
    let written: u64 = other.says("written").parse().unwrap();
    assert!(other.child.wait().unwrap().success());
    let history = History::open(&path).unwrap();
    // Only so many models are summed up, so they are counted here.
    drop(history);
    let file = duckdb::Connection::open(&path).unwrap();
    let kept: u64 =
        file.query_row("SELECT count(*)::UBIGINT FROM inferences", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, written);
}
