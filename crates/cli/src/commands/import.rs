//! `holdfast import`

use holdfast_models::{ImportOptions, Imported, Variant};
use serde_json::{Value, json};

use crate::args::{Global, ImportArgs};
use crate::output::{self, Spinner, bytes, plural};

pub(crate) fn run(global: &Global, args: &ImportArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    let options = ImportOptions {
        name: args.name.clone(),
        variant: args.variant.clone().map(Variant),
        source: None,
    };
    let spinner = Spinner::new("reading");
    let imported = store.import(&args.path, &options, &mut |path| {
        spinner.say(format!("importing {}", path.display()));
    })?;
    drop(spinner);
    report(global, &imported)
}

/// Says what an import did.
pub(crate) fn report(global: &Global, imported: &Imported) -> anyhow::Result<()> {
    if global.json {
        return output::print_json(&to_json(imported));
    }
    let Imported { manifest, replaced, written, weight_bytes } = imported;
    let verb = if *replaced { "replaced" } else { "imported" };
    output::line(format!("{verb} {}", manifest.name))?;
    for component in &manifest.components {
        output::line(format!(
            "  {} ({}): {}",
            component.role,
            component.variant,
            plural(component.graph.weights.len(), "large weight"),
        ))?;
    }
    let there = weight_bytes.saturating_sub(written.bytes);
    let mut line = format!("  weights: {}", bytes(*weight_bytes));
    if there > 0 && there == *weight_bytes {
        line.push_str(", all of them already in the store");
    } else if there > 0 {
        line.push_str(&format!(", {} of them already in the store", bytes(there)));
    }
    output::line(line)?;
    let transposed: usize = manifest.components.iter().map(|c| c.transposed.len()).sum();
    if transposed > 0 {
        let weights = plural(transposed, "weight");
        output::line(format!(
            "  {weights} also in the store transposed (holdfast show {})",
            manifest.name
        ))?;
    }
    Ok(())
}

fn to_json(imported: &Imported) -> Value {
    json!({
        "model": imported.manifest.name,
        "replaced": imported.replaced,
        "components": imported.manifest.components.iter().map(|component| json!({
            "role": component.role,
            "variant": component.variant,
            "file": component.file,
            "large_weights": component.graph.weights.len(),
            "transposed_weights": component.transposed.len(),
        })).collect::<Vec<_>>(),
        "weight_bytes": imported.weight_bytes,
        "weight_bytes_written": imported.written.bytes,
        "weights_written": imported.written.blobs,
    })
}
