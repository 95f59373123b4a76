//! A pool of this process that keeps what it measures: where mixes are predicted, run and compared.

use std::sync::Arc;

use anyhow::{Context, bail};
use holdfast_models::Store;
use holdfast_pool::{Pool, PoolOptions, Priority, Request, Workload};
use holdfast_predict::{Goal, ValidatorOptions};
use holdfast_server::ServerFile;

use crate::args::{DbArgs, Global, ModelBatch, PlaceArgs};
use crate::chosen::{Chosen, choose};
use crate::chronicle::Recording;
use crate::commands::bench::feed::{Sizes, feed_round};
use crate::output::Spinner;
use crate::place::{Place, pool_options};

/// A pool of this process and the history that it writes.
pub(crate) struct Lab {
    pub(crate) spinner: Arc<Spinner>,
    store: Arc<Store>,
    place: Place,
    pub(crate) pool: Arc<Pool>,
    pub(crate) recording: Recording,
}

impl Lab {
    /// Opens the history and a pool, with a door for browsers if one may be needed.
    pub(crate) async fn open(global: &Global, args: &PlaceArgs) -> anyhow::Result<Lab> {
        let spinner = Arc::new(Spinner::new("opening the history"));
        let say = spinner.clone();
        let progress = Arc::new(move |text: &str| say.say(text.to_owned()));
        let options = pool_options(global, Some(&args.fleet), args.threads, progress)?;
        Lab::with(global, &args.db, options, args.device.need_browser(), spinner).await
    }

    /// The same without anything to run on but the processor.
    pub(crate) async fn of_history(global: &Global, db: &DbArgs) -> anyhow::Result<Lab> {
        let spinner = Arc::new(Spinner::new("opening the history"));
        let options = pool_options(global, None, None, Arc::new(|_| ()))?;
        Lab::with(global, db, options, false, spinner).await
    }

    async fn with(
        global: &Global,
        db: &DbArgs,
        options: PoolOptions,
        with_browser: bool,
        spinner: Arc<Spinner>,
    ) -> anyhow::Result<Lab> {
        if db.db.is_none()
            && let Some(server) = ServerFile::find(&global.home()?)
        {
            bail!(
                "the server at {} runs and holds the history; stop it, or keep what is measured \
                 here in a file of its own with --db FILE",
                server.origin
            );
        }
        let recording = Recording::start(global, db)?;
        // What is asked for here is to be compared every time.
        let validation = ValidatorOptions { interval: 1, ..ValidatorOptions::default() };
        let options = recording.of_pool(PoolOptions { validation, ..options });
        let store = Arc::new(global.store()?);
        let place = Place::here(store.clone(), options, with_browser).await?;
        let Place::Here { pool, .. } = &place else { bail!("this process runs no models") };
        Ok(Lab { spinner, store, pool: pool.clone(), place, recording })
    }

    /// Models with inputs that are made for them, other ones in each round. One that is named again
    /// has others again: requests that are all the same are no batch.
    pub(crate) fn workload(
        &self,
        models: &[ModelBatch],
        args: &PlaceArgs,
        goal: Goal,
        round: u64,
    ) -> anyhow::Result<Workload> {
        let request = |(at, of): (usize, &ModelBatch)| {
            self.request(of, args, round + APART * times_before(models, at))
        };
        let requests = models.iter().enumerate().map(request).collect::<anyhow::Result<_>>()?;
        Ok(Workload { requests, goal })
    }

    fn request(&self, of: &ModelBatch, args: &PlaceArgs, round: u64) -> anyhow::Result<Request> {
        let Chosen { component, .. } = choose(&self.store, &of.model, None, None)?;
        let graph = self.store.open_graph(&component.graph)?;
        let named = |(name, _): &&(String, usize)| {
            let inputs = graph.inputs();
            let dims = inputs.into_iter().filter_map(|input| input.dims).flatten();
            dims.into_iter().any(|dim| matches!(dim, holdfast_graph::Dim::Named(of) if of == *name))
        };
        // A size that is meant for one model of several is none of the others'.
        let dims: Vec<(String, usize)> = args.dims.iter().filter(named).cloned().collect();
        let sizes = Sizes { batch: of.batch, tokens: args.tokens as usize, dims: &dims };
        let feed = feed_round(&graph, &component.role.0, &sizes, round)
            .with_context(|| format!("cannot feed `{}`", of.model))?;
        Ok(Request {
            model: of.to_string(),
            graph: component.graph,
            kind: feed.kind,
            inputs: feed.tensors,
            choices: args.device.clone(),
            priority: Priority::Normal,
            share: !args.no_share,
            namespace: String::new(),
            deadline: None,
        })
    }

    /// The names of models that can be fed.
    pub(crate) fn models(&self, args: &PlaceArgs) -> anyhow::Result<Vec<String>> {
        let can_be_fed = |name: &String| {
            self.request(&ModelBatch { model: name.clone(), batch: 1 }, args, 0).is_ok()
        };
        Ok(self.store.names()?.into_iter().filter(can_be_fed).collect())
    }

    /// Keeps what was learned, and ends what was started.
    pub(crate) async fn close(self) {
        self.spinner.say("closing");
        self.pool.ledger().settled().await;
        self.pool.ledger().save();
        self.place.close().await;
        self.recording.finish();
    }
}

/// Rounds between two inputs of a model in one workload: more than anybody runs.
const APART: u64 = 1 << 32;

/// How often a model was named before. Inputs differ by that and not by the position, so that
/// different models have the same input and can share what they compute of it.
fn times_before(models: &[ModelBatch], at: usize) -> u64 {
    models[..at].iter().filter(|other| other.model == models[at].model).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_model_that_is_named_again_has_another_input() {
        let named = |model: &str| ModelBatch { model: model.to_owned(), batch: 1 };
        let models = ["a", "b", "a", "a", "b"].map(named);
        let times: Vec<u64> = (0..models.len()).map(|at| times_before(&models, at)).collect();
        assert_eq!(times, [0, 0, 1, 2, 1]);
    }
}
