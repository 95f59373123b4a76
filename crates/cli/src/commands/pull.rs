//! `holdfast pull`

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use holdfast_models::hub::{Hub, Listing, RemoteFile, Repository};
use holdfast_models::{ImportOptions, Source, Variant, parse_stem};

use crate::args::{Global, PullArgs};
use crate::commands::import;
use crate::output::{Spinner, download_bar};

pub(crate) fn run(global: &Global, args: &PullArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    let repository: Repository = args.repository.parse()?;
    let hub = match &args.endpoint {
        Some(endpoint) => Hub::at(endpoint)?,
        None => Hub::from_environment()?,
    };
    let spinner = Spinner::new(format!("asking for {repository}"));
    let listing = hub.list(&repository, &args.revision)?;
    drop(spinner);

    let variant = choose_variant(&listing, args.variant.as_deref())?;
    // Each variant has its own folder: what is in it is what will be imported.
    let precision = variant.as_ref().map_or("all", |variant| &variant.0);
    let folder = store.home().join("downloads").join(repository.as_str()).join(precision);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let wanted = |file: &RemoteFile| is_wanted(&file.path, variant.as_ref());
    let total = listing.files.iter().filter(|file| wanted(file)).map(|file| file.size).sum();
    let bar = download_bar(total);
    hub.download(&listing, wanted, &folder, &mut |progress| {
        bar.set_message(progress.file.path.clone());
        bar.set_position(progress.done);
    })?;
    bar.finish_and_clear();

    let options = ImportOptions {
        name: Some(args.name.clone().unwrap_or_else(|| repository.short_name().to_owned())),
        // Names said which files to get; what is in them may still say another precision.
        variant: None,
        source: Some(Source::Hub {
            endpoint: hub.endpoint(),
            repository: repository.to_string(),
            revision: listing.commit.clone(),
        }),
    };
    let spinner = Spinner::new("importing");
    let imported = store.import(&folder, &options, &mut |path| {
        spinner.say(format!("importing {}", path.display()));
    })?;
    drop(spinner);
    // What was downloaded is in the store now.
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    import::report(global, &imported)
}

/// The variant to download: what the user asked for, or the best that there is. `None` for all.
fn choose_variant(listing: &Listing, asked: Option<&str>) -> anyhow::Result<Option<Variant>> {
    let paths = listing.files.iter().map(|file| file.path.as_str());
    let there: BTreeSet<Variant> = paths.filter_map(onnx_stem).map(variant_of_stem).collect();
    let Some(best) = there.first() else {
        bail!(
            "{} has no ONNX files; look for a repository that has an `onnx` folder",
            listing.repository
        );
    };
    match asked {
        None => Ok(Some(best.clone())),
        Some("all") => Ok(None),
        Some(name) if there.contains(&Variant(name.to_owned())) => {
            Ok(Some(Variant(name.to_owned())))
        }
        Some(name) => {
            let names: Vec<String> = there.iter().map(ToString::to_string).collect();
            bail!("{} has no variant `{name}`; it has {}", listing.repository, names.join(", "))
        }
    }
}

/// A file without a variant in its name is the original.
fn variant_of_stem(stem: &str) -> Variant {
    parse_stem(stem).1.unwrap_or_else(|| Variant("fp32".to_owned()))
}

/// The stem of an ONNX file where models keep them.
fn onnx_stem(path: &str) -> Option<&str> {
    let name = path.strip_prefix("onnx/").unwrap_or(path);
    name.strip_suffix(".onnx").filter(|stem| !stem.contains('/'))
}

fn is_wanted(path: &str, variant: Option<&Variant>) -> bool {
    let fits = |stem: &str| variant.is_none_or(|variant| *variant == variant_of_stem(stem));
    if let Some(stem) = onnx_stem(path) {
        return fits(stem);
    }
    // External data is named after the file it belongs to.
    let name = path.strip_prefix("onnx/").unwrap_or(path);
    if let Some((stem, rest)) = name.split_once(".onnx") {
        return !rest.is_empty() && !stem.contains('/') && fits(stem);
    }
    let side = [".json", ".txt", ".model", ".tiktoken", ".jinja"];
    let plain = !path.contains('/') && side.iter().any(|extension| path.ends_with(extension));
    plain || path == "1_Pooling/config.json"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_side_files_and_one_variant() {
        let fp32 = Variant("fp32".to_owned());
        let check =
            |path: &str, wanted: bool| assert_eq!(is_wanted(path, Some(&fp32)), wanted, "{path}");
        check("config.json", true);
        check("1_Pooling/config.json", true);
        check("onnx/model.onnx", true);
        check("onnx/model.onnx_data", true);
        check("model.onnx", true);
        check("onnx/model_fp16.onnx", false);
        check("onnx/model_fp16.onnx_data", false);
        check("pytorch_model.bin", false);
        check("openvino/openvino_model.xml", false);
        check("onnx/deep/model.onnx", false);
        assert!(is_wanted("onnx/model_fp16.onnx", None));
    }
}
