//! H7: sharing changes no answer. All families of this suite, and random ones in which everything
//! is shared that can be, whatever it costs.

use std::time::{Duration, Instant};

use anyhow::Result;
use holdfast_graph::share::Prices;
use holdfast_pool::{PoolOptions, Request};
use holdfast_testkit::random;

use super::cases::{Column, Family};
use super::home::{self, Homes};
use super::rig::{Rig, same};
use crate::record::{Goal, Record};

const INPUTS: u64 = 3;

const RANDOM: u64 = 200;

/// How long random families are tried in a browser. What was not tried by then counts as different.
const LIMIT: Duration = Duration::from_secs(1800);

/// What became of some answers.
#[derive(Default)]
struct Tally {
    answers: usize,
    different: usize,
    /// Those that had something computed for them by another model.
    reused: usize,
    /// Plans that were found to change bits, and not used.
    refused: usize,
    /// Families for which there was no time.
    untried: usize,
}

pub(super) async fn families(record: &mut Record, homes: &mut Homes, column: Column) -> Result<()> {
    let mut tally = Tally::default();
    for family in Family::ALL {
        let rig = Rig::open(homes.of(family).await?, column, PoolOptions::default()).await?;
        for number in 0..INPUTS {
            let (shared, alone) = (rig.requests(number, true)?, rig.requests(number, false)?);
            tally.check(&rig, family.name(), &shared, &alone).await?;
        }
        tally.refused += rig.pool.metrics().refused_plans.len();
        rig.close().await?;
    }
    let what = format!("all families of this suite ({}): answers that differ", column.name());
    tally.add(record, &format!("H7.{}", column.name()), &what);
    Ok(())
}

pub(super) async fn random_families(record: &mut Record, column: Column) -> Result<()> {
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut tried = 0;
    // One browser for all of them: to start one takes longer than a family does.
    let home = tempfile::tempdir()?;
    home::fill(home.path(), &[])?;
    let options = PoolOptions { prices: Prices::free(), ..PoolOptions::default() };
    let mut rig = Rig::open(home.path(), column, options).await?;
    while tried < RANDOM && (column == Column::Cpu || began.elapsed() < LIMIT) {
        let models = random::family(tried);
        rig.bring(&models)?;
        let requests = |share: bool| -> Vec<Request> {
            let inputs = models.iter().map(|model| random::sample_inputs(model, tried));
            let inputs = inputs.enumerate();
            inputs.map(|(at, given)| rig.request(at, given.into_iter().collect(), share)).collect()
        };
        let family = format!("random family {tried}");
        tally.check(&rig, &family, &requests(true), &requests(false)).await?;
        rig.pool.forget_models().await;
        tried += 1;
    }
    tally.refused += rig.pool.metrics().refused_plans.len();
    rig.close().await?;
    tally.untried = (RANDOM - tried) as usize;
    let what = format!(
        "{RANDOM} random families ({}): answers that differ, and families that were not tried",
        column.name()
    );
    tally.add(record, &format!("H7.{}.random", column.name()), &what);
    Ok(())
}

impl Tally {
    /// Runs models together, then one after the other on what the first time left behind, and
    /// compares both with each on its own.
    async fn check(
        &mut self,
        rig: &Rig,
        family: &str,
        shared: &[Request],
        alone: &[Request],
    ) -> Result<()> {
        let mut given = rig.run(shared).await?;
        for request in shared {
            given.extend(rig.run(std::slice::from_ref(request)).await?);
        }
        let expected = rig.run(alone).await?;
        for (number, answer) in given.iter().enumerate() {
            let model = number % shared.len();
            self.answers += 1;
            self.reused += usize::from(answer.reused.tensors > 0);
            if !same(answer, &expected[model]) {
                println!("  {family}: answer {number} differs (model {model})");
                self.different += 1;
            }
        }
        Ok(())
    }

    fn add(&self, record: &mut Record, id: &str, what: &str) {
        let Tally { answers, different, reused, refused, untried } = self;
        let peer = format!(
            "each model on its own on the same device; {answers} answers, {reused} with something \
             reused, {refused} plans refused"
        );
        let wrong = (different + untried) as f64;
        record.add(id, what, wrong, "answers", &peer, Goal::AtMost(0.0));
    }
}
