//! From what the user gave to the tensors that a model asks for.

use anyhow::{Context, bail};
use holdfast_graph::Value;
use holdfast_models::input::{
    AudioInput, ImageInput, Prepared, Sidecars, Source, TextInput, check_input, npy,
};

use crate::args::RunArgs;

/// Prepares every input of a model.
pub(super) fn prepare(
    sidecars: &Sidecars,
    inputs: &[Value],
    args: &RunArgs,
) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared { tensors: Vec::new(), mask: None, truncated: Vec::new() };
    if !args.texts.is_empty() {
        let text = TextInput::new(sidecars, inputs)?.prepare(&args.texts)?;
        prepared.mask = text.mask;
        prepared.truncated = text.truncated;
        prepared.tensors.extend(text.tensors);
    }
    if !args.images.is_empty() {
        let pictures = read_all(&args.images)?;
        prepared.tensors.extend(ImageInput::new(sidecars, inputs)?.prepare(&pictures)?.tensors);
    }
    if !args.audio.is_empty() {
        let sounds = read_all(&args.audio)?;
        let audio = AudioInput::new(sidecars, inputs, args.rate)?.prepare(&sounds)?;
        prepared.tensors.extend(audio.tensors);
    }
    for (name, path) in &args.inputs {
        let Some(input) = inputs.iter().find(|input| input.name == *name) else {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            bail!("it has no input `{name}`; it has {}", names.join(", "));
        };
        let tensor = npy::read(&Source::read(path)?)?;
        check_input(input, &tensor).with_context(|| path.display().to_string())?;
        prepared.tensors.retain(|(given, _)| given != name);
        prepared.tensors.push((name.clone(), tensor));
    }
    let given = |name: &str| prepared.tensors.iter().any(|(given, _)| given == name);
    let missing: Vec<&Value> = inputs.iter().filter(|input| !given(&input.name)).collect();
    if let Some(first) = missing.first() {
        let listed: Vec<String> =
            missing.iter().map(|input| format!("`{}` {input}", input.name)).collect();
        bail!(
            "nothing was given for {}; use --text, --image or --audio, or --input {}=FILE.npy",
            listed.join(", "),
            first.name
        );
    }
    Ok(prepared)
}

fn read_all(paths: &[std::path::PathBuf]) -> anyhow::Result<Vec<Source>> {
    Ok(paths.iter().map(Source::read).collect::<Result<Vec<_>, _>>()?)
}
