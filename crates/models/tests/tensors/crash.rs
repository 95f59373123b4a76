//! Killed at any moment, a writer leaves the old tensor or the new one, whole.

use std::fs;
use std::process::Command;

use holdfast_graph::{DataType, Tensor};
use holdfast_models::tensors::{Compression, SavedTensors};
use holdfast_testkit::crash::{Ended, kill_during};

use super::{UNLIMITED, at};

const KILLS: usize = 25;
const FOLDER: &str = "HOLDFAST_TEST_TENSORS";
const ROUND: &str = "HOLDFAST_TEST_ROUND";

/// All of its bytes say in which round it was written.
fn tensor_of(round: usize) -> Tensor {
    let bytes = vec![round as u8; 5 << 20];
    Tensor::new(DataType::U8, vec![5 << 20], bytes.into()).unwrap()
}

/// Not a test: the process that is killed. It does nothing unless it is told where to write.
#[test]
fn writer_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let round: usize = std::env::var(ROUND).unwrap().parse().unwrap();
    let compression = if round.is_multiple_of(2) { Compression::None } else { Compression::Zstd };
    let saved = SavedTensors::open(folder, UNLIMITED).unwrap();
    saved.save("", "t", &tensor_of(round), compression, at(round as u64)).unwrap();
}

#[test]
fn a_killed_writer_leaves_the_old_tensor_or_the_new_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut before: Option<usize> = None;
    let tally = kill_during(
        KILLS,
        4,
        |round| {
            let mut command = Command::new(&program);
            command.args(["--exact", "crash::writer_that_is_killed", "--test-threads", "1"]);
            command.env(FOLDER, folder.path()).env(ROUND, round.to_string());
            command
        },
        |round, ended| {
            let saved = SavedTensors::open(folder.path(), UNLIMITED).unwrap();
            let after = saved.load("", "t", at(0)).unwrap();
            let is_new = after.as_ref() == Some(&tensor_of(round));
            let is_old = after == before.map(tensor_of);
            assert!(is_new || is_old && ended == Ended::Killed, "round {round}, {ended:?}");
            if is_new {
                before = Some(round);
            }
            let (listed, unreadable) = saved.list("").unwrap();
            assert_eq!(listed.len(), usize::from(after.is_some()));
            assert!(unreadable.is_empty(), "round {round}: {unreadable:?}");
            // What the killed one left beside it is gone: the tensor and the lock are there.
            let left = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, 1 + listed.len());
            Ok::<(), std::io::Error>(())
        },
    )
    .unwrap();
    assert_eq!(tally.killed, KILLS);
    assert!(before.is_some());
}
