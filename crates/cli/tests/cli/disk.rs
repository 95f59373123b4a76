//! Disks that are full, and folders that may not be written.

#![cfg(unix)]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use holdfast_models::Store;
use holdfast_testkit::Size;

use crate::support::{Finished, HOLDFAST, Scene, check, finish, made};

const NOBODY: u32 = 65534;

/// Runs the program where no file may be longer than `blocks` of 1024 bytes.
fn run_limited(scene: &Scene, blocks: u32, arguments: &str) -> Finished {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" {arguments}");
    let mut command = Command::new("bash");
    command.args(["-c", &script, HOLDFAST]).current_dir(scene.path(""));
    finish(command.env("HOLDFAST_HOME", scene.home()))
}

fn everything(scene: &Scene) -> Vec<String> {
    ["blobs", "models", "derived"].iter().flat_map(|folder| scene.files_in(folder)).collect()
}

#[test]
fn a_full_disk_is_one_sentence_and_changes_nothing() {
    let scene = Scene::new();
    let models = made("heads", 1, Size { vocabulary: 2048, ..Size::new(2, 128) });
    scene.write_model("old.onnx", &models[0]);
    scene.write_model("new.onnx", &made("heads", 2, Size::new(2, 128))[0]);
    scene.ok(&["import", "old.onnx", "--name", "model"]);
    let before = everything(&scene);

    for blocks in [0, 1, 100, 300] {
        let finished = run_limited(&scene, blocks, "import new.onnx --name model");
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "{blocks}");
        let message = finished.stderr;
        assert!(message.starts_with("error: the disk is full"), "{blocks}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(everything(&scene), before, "{blocks}");
        assert!(Store::open(scene.home()).unwrap().verify(None).unwrap().problems.is_empty());
    }
    let message = run_limited(&scene, 0, "import new.onnx --name model").stderr;
    check!(scene, message, @"error: the disk is full or a limit is reached: cannot write [DIR]/home/blobs/sha256-[DIGEST]; free some space and try again, no model was changed");
    // With room again it works.
    scene.ok(&["import", "new.onnx", "--name", "model"]);
}

#[test]
fn a_folder_that_may_not_be_written_is_one_sentence_with_a_hint() {
    let scene = Scene::new();
    scene.write_model("model.onnx", &made("bert", 1, Size::tiny())[0]);
    scene.ok(&["import", "model.onnx", "--name", "model"]);
    if fs::metadata(scene.home()).unwrap().uid() == 0 {
        // The program, and the library that it starts with, may be where only root can reach them.
        fs::copy(HOLDFAST, scene.path("holdfast")).unwrap();
        if let Some(folder) = option_env!("DUCKDB_LIB_DIR") {
            let name = format!("{DLL_PREFIX}duckdb{DLL_SUFFIX}");
            fs::copy(Path::new(folder).join(&name), scene.path(&name)).unwrap();
        }
    }
    let read_only = fs::Permissions::from_mode(0o555);
    for folder in ["", "home", "home/blobs", "home/models", "home/derived"] {
        fs::set_permissions(scene.path(folder), read_only.clone()).unwrap();
    }
    fs::set_permissions(scene.path("home/store.lock"), fs::Permissions::from_mode(0o444)).unwrap();

    let run = |arguments: &[&str]| finish(&mut without_privilege(&scene, arguments));
    let import = run(&["import", "model.onnx", "--name", "model"]);
    assert_eq!((import.code, import.stdout.as_str()), (Some(1), ""), "{}", import.stderr);
    check!(scene, import.stderr, @"error: cannot write to the store at [DIR]/home (Permission denied (os error 13)); check the folder, or choose another one with --home DIR or HOLDFAST_HOME");
    let fresh = run(&["models", "--home", "elsewhere"]);
    assert_eq!(fresh.code, Some(1));
    check!(scene, fresh.stderr, @"error: cannot write to the store at elsewhere/blobs (Permission denied (os error 13)); check the folder, or choose another one with --home DIR or HOLDFAST_HOME");
    // What only reads goes on.
    for arguments in [&["models"][..], &["show", "model"], &["verify"]] {
        let finished = run(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
    }
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program as a user whom permissions bind: root may write everywhere.
fn without_privilege(scene: &Scene, arguments: &[&str]) -> Command {
    let program = scene.path("holdfast");
    if !program.exists() {
        return scene.command(arguments);
    }
    let mut command = Command::new(program);
    command.args(arguments).current_dir(scene.path("")).env("HOLDFAST_HOME", scene.home());
    command.uid(NOBODY).gid(NOBODY);
    command
}
