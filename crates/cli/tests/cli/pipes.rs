//! Readers and writers that go away.

#![cfg(unix)]

use std::process::Command;

use crate::support::{HOLDFAST, Scene, finish, small};

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let scene = Scene::new();
    scene.write_model("a.onnx", &small("bert", 1));
    scene.ok(&["import", "a.onnx"]);
    for arguments in
        ["models", "models --json", "show a", "show a --json", "completions bash", "--help"]
    {
        // The reader is gone before the first byte is written.
        let script = format!("{{ sleep 0.1; \"$0\" {arguments}; echo \"code $?\" >&2; }} | true");
        let mut command = Command::new("bash");
        command.args(["-c", &script, HOLDFAST]).env("HOLDFAST_HOME", scene.home());
        let finished = finish(&mut command);
        assert_eq!(finished.stderr, "code 0\n", "{arguments}");
    }
    let script = "\"$0\" completions bash | head -1";
    let finished = finish(Command::new("bash").args(["-c", script, HOLDFAST]));
    assert_eq!((finished.stdout.lines().count(), finished.stderr.as_str()), (1, ""));
}

#[test]
fn an_error_that_nobody_can_read_still_sets_the_exit_code() {
    let scene = Scene::new();
    for (arguments, code) in [("show absent", 1), ("show", 2)] {
        for redirect in ["2>&-", "2>/dev/full", "2>&1 >&-"] {
            let script = format!("\"$0\" {arguments} {redirect}; exit $?");
            let mut command = Command::new("bash");
            command.args(["-c", &script, HOLDFAST]).env("HOLDFAST_HOME", scene.home());
            assert_eq!(finish(&mut command).code, Some(code), "{arguments} {redirect}");
        }
    }
}
