//! Help teaches.

use clap_complete::Shell;

use crate::support::{Scene, check};

const COMMANDS: [&str; 22] = [
    "import",
    "pull",
    "models",
    "show",
    "rm",
    "verify",
    "gc",
    "run",
    "serve",
    "join",
    "pool",
    "bench",
    "predict",
    "compare",
    "validate",
    "refine",
    "history",
    "report",
    "doctor",
    "demo",
    "synth",
    "completions",
];

#[test]
fn the_first_help_says_what_there_is() {
    let scene = Scene::new();
    check!(scene, scene.ok(&["--help"]), @r#"
    Run several AI models together: what they have in common is stored and loaded once

    Usage: holdfast [OPTIONS] <COMMAND>

    Commands:
      import       Import an ONNX file or a Hugging Face style folder
      pull         Download a model from a hub and import it
      models       List the models in the store
      show         Show what a model is made of
      share        Say what models have in common, what that saves, and why the rest is not shared
      rm           Remove models; `gc` then frees what only they had
      verify       Check that every stored byte is what it was
      gc           Remove what no model needs
      run          Run models on text, pictures, sound or tensors
      serve        Serve models and take browsers in, until Ctrl-C
      join         Print the link by which a browser joins the running server
      pool         Watch the running server's browsers, models, queue and times
      bench        Measure how fast models run here: throughput and latency, by model and device
      predict      Say what a mix of models will cost before it runs, and how sure that is
      compare      Run a mix in every way, in turns, and say which is best
      validate     Predict mixes drawn at random, run them, and say how good the predictions were
      refine       Change the predictor by its past errors, where that helps
      history      List what was predicted and what it was
      report       Write a report of predictions, measurements and what was learned from them
      doctor       Say what this machine and its browsers can do, and how to fix the rest
      demo         Show what sharing saves, on models that are made and trained for it
      synth        Make seeded models in code, for tests and benchmarks
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
          --home <DIR>          Where models are kept [default: the platform's data folder] [env:
                                HOLDFAST_HOME]
          --json                Print JSON with stable keys instead of text
          --onnxruntime <FILE>  The ONNX Runtime library [default: beside this program, or the source
                                tree's]
      -h, --help                Print help
      -V, --version             Print version

    Examples:
      holdfast import ./all-MiniLM-L6-v2
      holdfast run all-MiniLM-L6-v2 --text "hello" --pool mean
      holdfast run all-MiniLM-L6-v2 --text "hello" --device webgpu,wasm,cpu
      holdfast show all-MiniLM-L6-v2

    Exit codes: 0 done, 1 failed, 2 the command was not understood.
    "#);
    assert_eq!(scene.ok(&["help"]), scene.ok(&["--help"]));
}

#[test]
fn every_command_that_takes_arguments_has_examples() {
    let scene = Scene::new();
    let top = scene.ok(&["--help"]);
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{command} is not listed");
        let help = scene.ok(&[command, "--help"]);
        let takes = command != "models";
        assert_eq!(takes, help.contains("Examples:\n"), "{help}");
        for example in help.lines().filter(|line| line.starts_with("  holdfast ")) {
            assert_eq!(example.split_whitespace().nth(1), Some(command), "{example}");
        }
    }
}

#[test]
fn without_a_command_help_is_shown_and_the_exit_code_says_so() {
    let scene = Scene::new();
    let finished = scene.run(&[]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
    assert!(finished.stderr.contains("Examples:"), "{}", finished.stderr);
}

#[test]
fn completions_know_commands_and_options_in_every_shell() {
    let scene = Scene::new();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
        let script = scene.ok(&["completions", &shell.to_string()]);
        for word in ["import", "similarity", "onnxruntime", "concurrent", "lanes"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let bash = scene.path("holdfast.bash");
    std::fs::write(&bash, scene.ok(&["completions", "bash"])).unwrap();
    // The shell itself reads the script and completes with it.
    let script = format!(
        "source {}; COMP_WORDS=(holdfast ver); COMP_CWORD=1; \
         _holdfast holdfast ver holdfast; echo \"${{COMPREPLY[@]}}\"",
        bash.display()
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "verify");
}
