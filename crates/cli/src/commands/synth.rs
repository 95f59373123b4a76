//! `holdfast synth`

use std::fs;

use anyhow::Context;
use holdfast_testkit::Size;
use holdfast_testkit::synth::{Kind, Options, synth};
use serde_json::json;

use crate::args::{Global, SynthArgs};
use crate::output::{self, Spinner, bytes};

pub(crate) fn run(global: &Global, args: &SynthArgs) -> anyhow::Result<()> {
    let kind: Kind = args.kind.parse()?;
    let (layers, hidden) = (args.layers as usize, args.hidden as usize);
    let tiny = Size::tiny();
    let mut size =
        if hidden == tiny.hidden { Size { layers, ..tiny } } else { Size::new(layers, hidden) };
    if let Some(heads) = args.heads {
        size = Size { heads, key_value_heads: heads, ..size };
    }
    if let Some(vocabulary) = args.vocabulary {
        size.vocabulary = vocabulary;
    }
    let options =
        Options { size, seed: args.seed, count: args.count, rank: args.rank, ..Options::default() };

    let spinner = Spinner::new("drawing weights");
    let members = synth(kind, &options)?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    let mut written = Vec::new();
    for member in &members {
        let path = args.out.join(format!("{}.onnx", member.stem));
        spinner.say(format!("writing {}", path.display()));
        let encoded = holdfast_graph::encode(&member.model);
        fs::write(&path, &encoded).with_context(|| format!("cannot write {}", path.display()))?;
        written.push((path, encoded.len() as u64));
    }
    drop(spinner);
    if global.json {
        let files = written.iter().map(|(path, bytes)| json!({ "path": path, "bytes": bytes }));
        return output::print_json(&json!({ "files": files.collect::<Vec<_>>() }));
    }
    for (path, size) in written {
        output::line(format!("{}  {}", path.display(), bytes(size)))?;
    }
    Ok(())
}
