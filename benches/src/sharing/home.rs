//! Stores with the models of a family: imported, lowered, planned and tried before anything is
//! measured, as they are for every run but the first.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use holdfast_graph::{Model, encode};
use holdfast_models::{ImportOptions, Store};
use holdfast_pool::PoolOptions;
use holdfast_testkit::{Recipe, bert};

use super::cases::{Column, Family};
use super::rig::Rig;

/// The model that keeps an engine warm.
pub(super) const WARM_UP: &str = "warm-up";

/// What the names of a family's models begin with.
pub(super) const MEMBER: &str = "model-";

/// The stores of a column, each made when it is asked for.
pub(super) struct Homes {
    column: Column,
    made: HashMap<Family, tempfile::TempDir>,
}

impl Homes {
    pub(super) fn new(column: Column) -> Homes {
        Homes { column, made: HashMap::new() }
    }

    pub(super) async fn of(&mut self, family: Family) -> Result<&Path> {
        if !self.made.contains_key(&family) {
            println!("  preparing {} ({})", family.name(), self.column.sizes());
            let home = tempfile::tempdir()?;
            fill(home.path(), &family.models(self.column.size())?)?;
            let prepared = prepare(home.path(), self.column).await;
            prepared.with_context(|| format!("cannot prepare {}", family.name()))?;
            self.made.insert(family, home);
        }
        Ok(self.made[&family].path())
    }
}

/// Imports models and the one that keeps an engine warm.
pub(super) fn fill(home: &Path, models: &[Model]) -> Result<()> {
    let store = Store::open(home)?;
    let file = home.join("import.onnx");
    let import = |model: &Model, name: String| -> Result<()> {
        std::fs::write(&file, encode(model))?;
        let options = ImportOptions { name: Some(name), ..ImportOptions::default() };
        store.import(&file, &options, &mut |_| ())?;
        Ok(())
    };
    for (number, model) in models.iter().enumerate() {
        import(model, format!("{MEMBER}{number}"))?;
    }
    import(&bert(&Recipe::tiny(1))?, WARM_UP.to_owned())?;
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Runs everything once, both ways.
async fn prepare(home: &Path, column: Column) -> Result<()> {
    let rig = Rig::open(home, column, PoolOptions::default()).await?;
    for share in [false, true] {
        rig.run(&rig.requests(0, share)?).await?;
    }
    for refused in rig.pool.metrics().refused_plans {
        println!("  {refused}");
    }
    rig.close().await
}
