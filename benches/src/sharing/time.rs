//! H2, H3, H6: how long models take, with what they have in common computed once and without.
//!
//! Both sides take turns, every run has inputs that no run had before, and the fastest counts.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use holdfast_pool::{Answer, PoolOptions, Request};

use super::bare::Bare;
use super::cases::{Column, Family};
use super::home::Homes;
use super::rig::Rig;
use crate::record::{Goal, Record};
use crate::timing::settle;

const ROUNDS: usize = 15;
const WARM_UPS: usize = 2;

/// H2: one input through all three heads of a trunk.
pub(super) async fn together(record: &mut Record, homes: &mut Homes, column: Column) -> Result<()> {
    let mut bench = Bench::open(homes, Family::Heads, column).await?;
    let (mut ours, mut theirs) = (Fastest::default(), Fastest::default());
    let mut once = 0;
    for round in 0..WARM_UPS + ROUNDS {
        let requests = bench.requests(true)?;
        let (took, answers) = bench.pooled(&requests).await?;
        let plain = bench.plain(0..requests.len()).await?;
        if round >= WARM_UPS {
            ours.add(took);
            theirs.add(plain);
            // One computes what they have in common, and the others need not.
            once += usize::from(answers.iter().filter(|a| a.reused.tensors == 0).count() == 1);
        }
    }
    let goal = match column {
        Column::Cpu => 0.38,
        Column::Wasm => 0.42,
        Column::WebGpu => 0.45,
    };
    let peer = format!(
        "{}: {theirs}, ours {ours}; the trunk was computed once in {once} of {ROUNDS} rounds",
        bench.how()
    );
    let what = format!("{}: time of one input ({})", Family::Heads.name(), column.sizes());
    let id = format!("H2.{}", column.name());
    record.add(&id, &what, ours.over(&theirs), "×", &peer, Goal::AtMost(goal));
    bench.rig.close().await
}

/// H3: the second model on an input that the first has just seen.
pub(super) async fn second(record: &mut Record, homes: &mut Homes, column: Column) -> Result<()> {
    let mut bench = Bench::open(homes, Family::Heads, column).await?;
    let (mut ours, mut theirs) = (Fastest::default(), Fastest::default());
    let mut found = 0;
    for round in 0..WARM_UPS + ROUNDS {
        let requests = bench.requests(true)?;
        bench.pooled(&requests[..1]).await?;
        let (took, answers) = bench.pooled(&requests[1..2]).await?;
        let plain = bench.plain(1..2).await?;
        if round >= WARM_UPS {
            ours.add(took);
            theirs.add(plain);
            found += usize::from(answers[0].reused.tensors > 0);
        }
    }
    let goal = match column {
        Column::Cpu | Column::Wasm => 0.10,
        Column::WebGpu => 0.20,
    };
    let peer = format!(
        "its own time on new inputs, {}: {theirs}, ours {ours}; the first one's result was there in \
         {found} of {ROUNDS} rounds",
        bench.how()
    );
    let what = format!("second model on an input that the first has seen ({})", column.sizes());
    let id = format!("H3.{}", column.name());
    record.add(&id, &what, ours.over(&theirs), "×", &peer, Goal::AtMost(goal));
    bench.rig.close().await
}

/// H6: models that have nothing in common, with sharing switched on and off.
pub(super) async fn unrelated(
    record: &mut Record,
    homes: &mut Homes,
    column: Column,
) -> Result<()> {
    let mut bench = Bench::open(homes, Family::Unrelated, column).await?;
    let (mut on, mut off) = (Fastest::default(), Fastest::default());
    for round in 0..WARM_UPS + ROUNDS {
        // Each goes first as often as the other.
        for share in if round % 2 == 0 { [true, false] } else { [false, true] } {
            let requests = bench.requests(share)?;
            let (took, _) = bench.pooled(&requests).await?;
            if round >= WARM_UPS {
                if share { &mut on } else { &mut off }.add(took);
            }
        }
    }
    let goal = match column {
        Column::Cpu => 1.03,
        Column::Wasm | Column::WebGpu => 1.05,
    };
    let peer = format!("the pool with sharing switched off: {off}, switched on {on}");
    let what = format!("{}: time of one input each ({})", Family::Unrelated.name(), column.sizes());
    let id = format!("H6.time.{}", column.name());
    record.add(&id, &what, on.over(&off), "×", &peer, Goal::AtMost(goal));
    bench.rig.close().await
}

/// A family both ways on one device.
struct Bench {
    rig: Rig,
    /// On the processor, the plain way is without the pool.
    bare: Option<Bare>,
    number: u64,
}

impl Bench {
    async fn open(homes: &mut Homes, family: Family, column: Column) -> Result<Bench> {
        let rig = Rig::open(homes.of(family).await?, column, PoolOptions::default()).await?;
        let bare = match column {
            Column::Cpu => Some(Bare::new(&rig).await?),
            Column::Wasm | Column::WebGpu => None,
        };
        Ok(Bench { rig, bare, number: 1000 })
    }

    /// One request for each model, on an input that no other has.
    fn requests(&mut self, share: bool) -> Result<Vec<Request>> {
        self.number += 1;
        self.rig.requests(self.number, share)
    }

    /// By the pool.
    async fn pooled(&self, requests: &[Request]) -> Result<(Duration, Vec<Answer>)> {
        settle();
        let started = Instant::now();
        let answers = self.rig.run(requests).await?;
        Ok((started.elapsed(), answers))
    }

    /// Some of the models the plain way: on the processor in turn or at once, whichever is faster.
    async fn plain(&mut self, models: Range<usize>) -> Result<Duration> {
        let requests = self.requests(false)?;
        let Some(bare) = &mut self.bare else {
            return Ok(self.pooled(&requests[models]).await?.0);
        };
        let inputs: Vec<_> = requests.iter().map(|request| request.inputs.clone()).collect();
        settle();
        let started = Instant::now();
        bare.run_in_turn(models.clone(), &inputs)?;
        let in_turn = started.elapsed();
        settle();
        let started = Instant::now();
        bare.run_at_once(models, &inputs)?;
        Ok(in_turn.min(started.elapsed()))
    }

    fn how(&self) -> &'static str {
        match self.bare {
            Some(_) => "bare sessions of the lowered graphs, in turn or at once",
            None => "the same pool with sharing switched off",
        }
    }
}

/// The fastest of some times.
#[derive(Default)]
struct Fastest(Option<Duration>);

impl Fastest {
    fn add(&mut self, time: Duration) {
        self.0 = Some(self.0.map_or(time, |fastest| fastest.min(time)));
    }

    fn seconds(&self) -> f64 {
        self.0.unwrap_or_default().as_secs_f64()
    }

    fn over(&self, other: &Fastest) -> f64 {
        self.seconds() / other.seconds()
    }
}

impl std::fmt::Display for Fastest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ms", self.seconds() * 1e3)
    }
}
