//! Runs a workload in every way, in turns, and says which way is best and how sure that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use holdfast_predict::{
    Estimate, Goal, Measured, Mix, OptimizationImpact, Strategy, StrategyComparison,
};

use super::arrange::{Stages, arrange};
use super::significance::confidence;
use super::{Forecast, Workload, WorkloadError};
use crate::choice::Choice;
use crate::pool::Pool;
use crate::route::Prepared;

/// What comparing the ways to run a workload gave.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Where it ran.
    pub choice: Choice,
    /// What for.
    pub goal: Goal,
    /// One for each strategy.
    pub ways: Vec<Compared>,
    /// The recommended strategy with each model on its own, if the models share something.
    pub unshared: Option<Compared>,
    /// The strategy that was recommended before anything ran.
    pub recommended: Strategy,
    /// The one that was best.
    pub best: Strategy,
    /// How much more than the best the recommended one took: 0.05 is five percent.
    pub regret: f64,
    /// How sure it is that the best is better than the next best.
    pub confidence: f64,
}

/// One way to run a workload.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The strategy.
    pub strategy: Strategy,
    /// What it runs, and when.
    pub mix: Mix,
    /// What was predicted before anything ran; of the unshared way, just before it ran.
    pub estimate: Estimate,
    /// What it took, each time, but for memory: all ways are loaded in one engine, so what that takes
    /// is no measure of any of them. Strategies that come to the same for a workload run once for both.
    pub runs: Vec<Measured>,
}

impl Compared {
    /// The median of all runs.
    pub fn measured(&self) -> Measured {
        let middle = |of: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = self.runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            let at = values.len() / 2;
            match values.len() {
                0 => f64::NAN,
                count if count % 2 == 1 => values[at],
                _ => (values[at - 1] + values[at]) / 2.0,
            }
        };
        Measured {
            latency_seconds: middle(|run| run.latency_seconds),
            throughput_per_second: middle(|run| run.throughput_per_second),
            memory_bytes: None,
        }
    }

    /// The seconds of each run. Of one workload, what takes the least time gives the most answers a
    /// second too.
    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.latency_seconds).collect()
    }
}

impl Pool {
    /// Predicts, then runs a workload in every way so many times, in turns, after each was run once
    /// to warm up. All of it is recorded and learned from. That tells of time and nothing of memory.
    pub async fn compare(
        &self,
        workload: &Workload,
        repeats: usize,
    ) -> Result<Comparison, WorkloadError> {
        if workload.goal == Goal::Memory {
            return Err(WorkloadError::ComparedByMemory);
        }
        let (choice, workload) = self.settle(workload).await?;
        self.bring_together(&workload.requests).await;
        let forecast = self.forecast_warm(choice, &workload).await?;
        let recommended = forecast.recommendation.strategy;
        let routes = self.routes(choice, &workload).await?;
        let mut contenders = Contenders { pool: self, choice, ways: Vec::new() };
        for strategy in Strategy::ALL {
            contenders.add(&forecast, &workload, &routes, strategy);
        }
        if routes.iter().any(|route| route.alone().is_some()) {
            let mut alone = workload.clone();
            alone.requests.iter_mut().for_each(|request| request.share = false);
            let forecast = self.forecast_warm(choice, &alone).await?;
            let routes = self.routes(choice, &alone).await?;
            contenders.add(&forecast, &alone, &routes, recommended);
        }
        contenders.measure(repeats.max(1)).await?;
        let Contenders { ways, .. } = contenders;
        // What was measured once is learned from once.
        for way in ways.iter().filter(|way| way.twin.is_none()) {
            let measured = way.compared.measured();
            let estimate = &way.compared.estimate;
            self.ledger().executed(&way.compared.mix, &way.workload, estimate, &measured, true);
        }
        let mut compared: Vec<Compared> = ways.into_iter().map(|way| way.compared).collect();
        let unshared = (compared.len() > Strategy::ALL.len()).then(|| compared.pop()).flatten();
        let comparison = judge(choice, workload.goal, compared, unshared, recommended);
        self.record(&comparison, &workload, &forecast);
        Ok(comparison)
    }

    /// Keeps what each way gained over one after the other, and the recommended one over not sharing.
    fn record(&self, comparison: &Comparison, workload: &Workload, forecast: &Forecast) {
        let Some(device) = forecast.mixes.first().map(|mix| mix.device.clone()) else { return };
        let of = |strategy| comparison.ways.iter().find(|way| way.strategy == strategy);
        let timestamp = SystemTime::now();
        let impact = |name: String, baseline: &Compared, chosen: &Compared| {
            let (before, after) = (baseline.measured(), chosen.measured());
            OptimizationImpact {
                timestamp,
                model_count: workload.requests.len(),
                hardware_platform: device.backend.clone(),
                baseline_strategy: name,
                optimized_strategy: chosen.strategy.to_string(),
                baseline_throughput: before.throughput_per_second,
                optimized_throughput: after.throughput_per_second,
                baseline_latency: before.latency_seconds * 1e3,
                optimized_latency: after.latency_seconds * 1e3,
                baseline_memory: None,
                optimized_memory: None,
                optimization_goal: comparison.goal,
            }
        };
        if let Some(plain) = of(Strategy::Sequential) {
            let others = comparison.ways.iter().filter(|way| way.strategy != plain.strategy);
            for way in others {
                self.ledger().compared(impact(plain.strategy.to_string(), plain, way));
            }
        }
        if let (Some(unshared), Some(chosen)) = (&comparison.unshared, of(comparison.recommended)) {
            let name = format!("{}, unshared", unshared.strategy);
            self.ledger().compared(impact(name, unshared, chosen));
        }
        let seconds = |way: &Compared| (way.strategy, way.measured().latency_seconds);
        let seconds: Vec<(Strategy, f64)> = comparison.ways.iter().map(seconds).collect();
        let rounds: Vec<Vec<f64>> = comparison.ways.iter().map(Compared::seconds).collect();
        let mixes = comparison.ways.iter().map(|way| &way.mix);
        let ways: Vec<(&Mix, &[f64])> = mixes.zip(rounds.iter().map(Vec::as_slice)).collect();
        let compared = StrategyComparison {
            backend: device.backend.clone(),
            model_count: workload.requests.len(),
            batching_size: self.settings(comparison.choice).batching_size,
            seconds: seconds.clone(),
            available_memory_bytes: self.memory_for_models(comparison.choice),
        };
        self.ledger().adapt(compared, &ways);
    }
}

/// Ways that take turns.
struct Contenders<'a> {
    pool: &'a Pool,
    choice: Choice,
    ways: Vec<Way>,
}

struct Way {
    workload: Workload,
    stages: Stages,
    compared: Compared,
    /// One before it that is the same.
    twin: Option<usize>,
}

impl Contenders<'_> {
    fn add(
        &mut self,
        forecast: &Forecast,
        workload: &Workload,
        routes: &[Arc<Prepared>],
        strategy: Strategy,
    ) {
        let Some((mix, estimate)) = forecast.of(strategy) else { return };
        let stages = arrange(strategy, routes, self.pool.settings(self.choice).batching_size);
        let shares = |workload: &Workload| workload.requests.iter().any(|request| request.share);
        let same = |way: &Way| way.stages == stages && shares(&way.workload) == shares(workload);
        let twin = self.ways.iter().position(same);
        let (mix, estimate) = (mix.clone(), estimate.clone());
        let compared = Compared { strategy, mix, estimate, runs: Vec::new() };
        self.ways.push(Way { workload: workload.clone(), stages, compared, twin });
    }

    async fn measure(&mut self, repeats: usize) -> Result<(), WorkloadError> {
        // The first time everything is loaded and batches are tried, which says nothing of the rest.
        let own: Vec<usize> =
            (0..self.ways.len()).filter(|at| self.ways[*at].twin.is_none()).collect();
        for &at in &own {
            self.run(at).await?;
        }
        for round in 0..repeats {
            for turn in turns(own.len(), round) {
                let measured = self.run(own[turn]).await?;
                self.ways[own[turn]].compared.runs.push(measured);
            }
        }
        for at in 0..self.ways.len() {
            if let Some(twin) = self.ways[at].twin {
                self.ways[at].compared.runs = self.ways[twin].compared.runs.clone();
            }
        }
        Ok(())
    }

    async fn run(&self, at: usize) -> Result<Measured, WorkloadError> {
        // Each run has a namespace of its own, whichever comparison it is of: what one has computed
        // must not be there for the next.
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let Way { workload, stages, .. } = &self.ways[at];
        let mut workload = workload.clone();
        for request in &mut workload.requests {
            request.namespace = format!("{}#{run}", request.namespace);
        }
        let (_, measured) = self.pool.time(&workload, stages).await?;
        Ok(measured)
    }
}

/// The order of a round. Every second round goes back the way that the one before came, so that a
/// drift hits all alike. Of more than two, each pair of rounds begins with another, so that none
/// always comes after the same: what is in caches is what ran last.
fn turns(ways: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ways).collect();
    if ways > 2 {
        order.rotate_left(round / 2 % ways);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

fn judge(
    choice: Choice,
    goal: Goal,
    ways: Vec<Compared>,
    unshared: Option<Compared>,
    recommended: Strategy,
) -> Comparison {
    let mut ranked: Vec<&Compared> = ways.iter().collect();
    let middle = |way: &Compared| way.measured().latency_seconds;
    ranked.sort_by(|one, other| middle(one).total_cmp(&middle(other)));
    let best = ranked.first().map_or(recommended, |way| way.strategy);
    let score = |strategy| {
        let way = ways.iter().find(|way| way.strategy == strategy);
        way.map_or(f64::NAN, middle)
    };
    // Strategies that come to the same were run once for both: there is nothing to be told apart.
    let mut runs = ranked.iter().map(|way| way.seconds());
    let first = runs.next().unwrap_or_default();
    let sure = runs.find(|other| *other != first).map_or(0.0, |next| {
        let pairs: Vec<(f64, f64)> = first.iter().copied().zip(next).collect();
        confidence(&pairs)
    });
    let regret = score(recommended) / score(best) - 1.0;
    Comparison { choice, goal, unshared, recommended, best, regret, confidence: sure, ways }
}

#[cfg(test)]
mod tests {
    use holdfast_predict::{DeviceProfile, Quantity, TermSource};

    use super::*;

    fn way(strategy: Strategy, seconds: &[f64]) -> Compared {
        let nothing = Quantity { value: 0.0, low: 0.0, high: 0.0, source: TermSource::Prior };
        let estimate = Estimate {
            latency_seconds: nothing,
            throughput_per_second: nothing,
            memory_bytes: nothing,
            observations: 0,
            terms: Vec::new(),
        };
        let run = |&seconds: &f64| Measured {
            latency_seconds: seconds,
            throughput_per_second: 2.0 / seconds,
            memory_bytes: None,
        };
        let device = DeviceProfile {
            key: "cpu".to_owned(),
            backend: "cpu".to_owned(),
            adapter: String::new(),
            software_adapter: false,
            slots: 2,
            threads: 1,
            cores: 2,
            rates: None,
        };
        let (device, stages) = (Arc::new(device), Vec::new());
        let (memory_now, warmed_up) = (None, true);
        let mix = Mix { device, strategy, stages, answers: 2, memory_now, warmed_up };
        Compared { strategy, mix, estimate, runs: seconds.iter().map(run).collect() }
    }

    #[test]
    fn the_best_is_the_one_with_the_smallest_median_and_regret_is_what_it_would_have_saved() {
        let ways = vec![
            way(Strategy::Parallel, &[1.0, 1.1, 9.0]),
            way(Strategy::Sequential, &[2.2, 2.2, 2.2]),
        ];
        let judged = judge(Choice::Cpu, Goal::Latency, ways, None, Strategy::Sequential);
        assert_eq!(judged.best, Strategy::Parallel);
        assert!((judged.regret - 1.0).abs() < 1e-9, "{}", judged.regret);
        assert!(judged.confidence < 0.9, "one of three rounds says otherwise");
    }

    #[test]
    fn a_strategy_that_comes_to_the_same_as_the_best_says_nothing_of_how_sure_it_is() {
        let ways = vec![
            way(Strategy::Parallel, &[1.0, 1.1, 1.0, 1.1, 1.0]),
            way(Strategy::Sequential, &[1.3, 1.4, 1.3, 1.4, 1.3]),
            way(Strategy::Batched, &[1.0, 1.1, 1.0, 1.1, 1.0]),
        ];
        let judged = judge(Choice::Cpu, Goal::Latency, ways, None, Strategy::Parallel);
        assert_eq!(judged.best, Strategy::Parallel);
        assert!(judged.confidence > 0.9, "{}", judged.confidence);
        let same = vec![way(Strategy::Parallel, &[1.0; 5]), way(Strategy::Batched, &[1.0; 5])];
        let judged = judge(Choice::Cpu, Goal::Latency, same, None, Strategy::Parallel);
        assert_eq!(judged.confidence, 0.0);
    }

    #[test]
    fn no_way_always_comes_after_the_same_and_all_have_the_same_place_in_the_mean() {
        for ways in 2..=4 {
            let rounds = 2 * ways;
            let all: Vec<usize> = (0..rounds).flat_map(|round| turns(ways, round)).collect();
            for way in 0..ways {
                let before = |at: usize| all[(at + all.len() - 1) % all.len()];
                let at = (0..all.len()).filter(|&at| all[at] == way);
                let mut comes_after: Vec<usize> = at.map(before).collect();
                comes_after.sort_unstable();
                let most = comes_after.chunk_by(|one, other| one == other).map(<[usize]>::len);
                assert!(most.max().unwrap() <= rounds / 2, "{ways} ways: {comes_after:?}");
                let places = (0..rounds)
                    .map(|round| turns(ways, round).iter().position(|turn| *turn == way).unwrap());
                assert_eq!(places.sum::<usize>() * 2, rounds * (ways - 1), "{ways} ways, {way}");
            }
        }
    }

    #[test]
    fn what_is_recommended_and_best_has_no_regret() {
        let ways = vec![way(Strategy::Parallel, &[1.0; 5]), way(Strategy::Sequential, &[1.2; 5])];
        let judged = judge(Choice::Cpu, Goal::Throughput, ways, None, Strategy::Parallel);
        assert_eq!((judged.best, judged.regret), (Strategy::Parallel, 0.0));
        assert!(judged.confidence > 0.9);
    }
}
