//! A store of its own for each test, and the program that works on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_graph::Model;
use holdfast_testkit::Size;
use holdfast_testkit::synth::{Options, synth};
use serde_json::Value;
use tempfile::TempDir;

/// The program.
pub(crate) const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");

/// What differs from run to run, and what stands for it in snapshots.
pub(crate) const FILTERS: [(&str, &str); 5] = [
    (r"\b[0-9a-f]{64}\b", "[DIGEST]"),
    (r"[0-9]+\.[0-9] ms", "[TIME]"),
    (r"private to this process [0-9.]+ [kMG]?B", "private to this process [SIZE]"),
    (r"ran on .*", "ran on [DEVICE]"),
    (r"127\.0\.0\.1(:[0-9]+)?", "[HUB]"),
];

/// Compares with an inline snapshot, without what differs from run to run.
macro_rules! check {
    ($scene:expr, $text:expr, @$snapshot:literal) => {
        insta::with_settings!({ filters => crate::support::FILTERS }, {
            insta::assert_snapshot!($scene.clean(&$text), @$snapshot);
        });
    };
}
pub(crate) use check;

/// A folder with a store in `home` and room for files beside it.
pub(crate) struct Scene {
    folder: TempDir,
}

/// What a finished process left.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the store is.
    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The program on this scene's store, with relative paths in this scene's folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOLDFAST);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("HOLDFAST_HOME", self.home());
        for name in ["HF_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_TOKEN_PATH"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        finish(&mut self.command(arguments))
    }

    /// The output of a command that succeeds and complains of nothing.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        assert_eq!(finished.stderr, "", "{arguments:?}");
        finished.stdout
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// The complaint of a command that fails: text and JSON say the same, stdout has nothing.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(code), "{arguments:?}: {}", finished.stderr);
        assert_eq!(finished.stdout, "", "{arguments:?}");
        let message = finished.stderr.strip_prefix("error: ").unwrap_or_else(|| {
            panic!("{arguments:?} complains in another form: {}", finished.stderr)
        });

        let as_json: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let as_json = self.run(&as_json);
        assert_eq!((as_json.code, as_json.stdout.as_str()), (Some(code), ""), "{arguments:?}");
        let object: Value = serde_json::from_str(&as_json.stderr).unwrap();
        assert_eq!(keys(&object), ["error"]);
        // A usage error ends with the usage, which names `--json` if it was given.
        let first = |text: &str| text.trim().lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(object["error"].as_str().unwrap()), first(message));
        message.trim().to_owned()
    }

    /// Writes a file, making its folders.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn write_model(&self, name: &str, model: &Model) -> PathBuf {
        self.write(name, holdfast_graph::encode(model))
    }

    /// The names of the files in a folder of the store.
    pub(crate) fn files_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.home().join(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The text without this scene's own path.
    pub(crate) fn clean(&self, text: &str) -> String {
        text.replace(self.folder.path().to_str().unwrap(), "[DIR]")
    }
}

pub(crate) fn finish(command: &mut Command) -> Finished {
    let output = command.output().unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The models of a kind, small unless a size is given.
pub(crate) fn made(kind: &str, seed: u64, size: Size) -> Vec<Model> {
    let options = Options { seed, size, ..Options::default() };
    let members = synth(kind.parse().unwrap(), &options).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

/// The only or first model of a kind.
pub(crate) fn small(kind: &str, seed: u64) -> Model {
    made(kind, seed, Size::tiny()).swap_remove(0)
}

/// Something that `cargo xtask setup` puts into `third-party`.
pub(crate) fn third_party(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third-party").join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// The keys of a JSON object.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
