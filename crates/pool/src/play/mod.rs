//! Which models are in play, and how they run together.
//!
//! A model comes into play when somebody asks for it, and runs on its own at first. Whenever other
//! models are in play than the last plan was for, a new one is made beside the work: what they
//! have in common is found, cut out, and tried against the models on their own. Only then are
//! requests sent that way. Those that are under way finish as they began, so a change of plan
//! loses nothing.

mod plan;
mod prove;
mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_devices::SegmentId;
use holdfast_devices::cpu::Target;
use holdfast_graph::Digest;
use holdfast_graph::share::Prices;
use holdfast_models::Store;
use holdfast_wire::Backend;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::batch::Inputs;
use crate::choice::Choice;
use crate::pool::lock;
use crate::request::Request;
use crate::route::Prepared;
use crate::scheduler::Scheduler;
use plan::Analysed;

/// Models that may be in play; of more, those that were asked for last.
const MOST: usize = 16;

/// How long a model stays in play that nobody asks for.
const IDLE: Duration = Duration::from_secs(600);

/// How long nothing is tried again after it could not be found out.
const PAUSE: Duration = Duration::from_secs(60);

/// All models in play. Cheap to clone: clones are the same.
#[derive(Clone)]
pub(crate) struct Plays {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    scheduler: Scheduler,
    prices: Prices,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// Never held while anything is awaited.
    plays: Mutex<HashMap<Stage, Play>>,
    /// While this is not zero, no plan is begun: somebody is still bringing models in.
    gathering: AtomicUsize,
    /// A plan was made, or given up.
    planned: Notify,
}

/// Where models can share: what was lowered for one target, at the same sizes where it has any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) dims: BTreeMap<String, usize>,
}

impl Stage {
    /// Where a model that was prepared on its own can share.
    fn of(target: Target, whole: &Prepared) -> Stage {
        let dims = whole.segments.first().map(|(_, segment)| segment.dims.clone());
        Stage { target, dims: dims.unwrap_or_default() }
    }

    fn choice(&self) -> Choice {
        match self.target {
            Target::Cpu => Choice::Cpu,
            Target::Wasm => Choice::Lane(Backend::Wasm),
            Target::WebGpu => Choice::Lane(Backend::Webgpu),
            Target::WebNn => Choice::Lane(Backend::Webnn),
        }
    }
}

/// The models in play on one stage.
#[derive(Default)]
struct Play {
    models: HashMap<Digest, InPlay>,
    /// The models that the routes are for, and the kinds of devices that they were tried on.
    planned_for: (BTreeSet<Digest>, usize),
    /// Those that share something.
    routes: HashMap<Digest, Arc<Prepared>>,
    is_planning: bool,
    failed_at: Option<Instant>,
}

/// A model in play.
#[derive(Clone)]
struct InPlay {
    whole: Arc<Prepared>,
    /// What it was asked with, to try a plan with.
    sample: Arc<Inputs>,
    used: Instant,
    analysed: Option<Arc<Analysed>>,
}

impl Play {
    /// Whether the plan is for other models than those in play, or other devices.
    fn is_stale(&self, kinds: usize, now: Instant) -> bool {
        let paused = self.failed_at.is_some_and(|at| now - at < PAUSE);
        let (models, known) = &self.planned_for;
        let same = models.len() == self.models.len()
            && self.models.keys().all(|model| models.contains(model));
        !paused && (!same || (*known != kinds && !self.routes.is_empty()))
    }

    /// Forgets who was not asked for in a long time.
    fn forget_idle(&mut self, now: Instant) {
        self.models.retain(|_, model| now - model.used < IDLE);
        while self.models.len() > MOST {
            let oldest = self.models.iter().min_by_key(|(_, model)| model.used);
            let Some(oldest) = oldest.map(|(digest, _)| *digest) else { break };
            self.models.remove(&oldest);
        }
    }
}

impl Plays {
    pub(crate) fn new(
        store: Arc<Store>,
        scheduler: Scheduler,
        prices: Prices,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Plays {
        let (plays, gathering, planned) = Default::default();
        let shared = Shared { store, scheduler, prices, progress, plays, gathering, planned };
        Plays { shared: Arc::new(shared) }
    }

    /// How a model runs that was asked for: as the plan says, or on its own if there is none yet.
    pub(crate) fn route(
        &self,
        request: &Request,
        target: Target,
        whole: Arc<Prepared>,
    ) -> Arc<Prepared> {
        let stage = Stage::of(target, &whole);
        let now = Instant::now();
        let mut plays = lock(&self.shared.plays);
        // A stage for sizes that were asked for once is not worth remembering.
        plays.retain(|other, play| *other == stage || play.is_planning || play.is_used(now));
        let play = plays.entry(stage.clone()).or_default();
        let new = || InPlay {
            whole: whole.clone(),
            sample: Arc::new(request.inputs.clone()),
            used: now,
            analysed: None,
        };
        play.models.entry(whole.original).or_insert_with(new).used = now;
        let route = play.routes.get(&whole.original).cloned();
        self.begin(&stage, play);
        route.unwrap_or(whole)
    }

    /// How models run together, by the graphs that they were imported as: as they do if they are in
    /// play, else as they would. Nothing is run for it.
    pub(crate) async fn preview(
        &self,
        target: Target,
        models: Vec<(Arc<Prepared>, Arc<Inputs>)>,
    ) -> HashMap<Digest, Arc<Prepared>> {
        let mut stages: HashMap<Stage, HashMap<Digest, InPlay>> = HashMap::new();
        for (whole, sample) in models {
            let in_play =
                InPlay { whole: whole.clone(), sample, used: Instant::now(), analysed: None };
            let stage = stages.entry(Stage::of(target, &whole)).or_default();
            stage.entry(whole.original).or_insert(in_play);
        }
        let mut routes = HashMap::new();
        for (stage, models) in stages {
            if let Some(play) = lock(&self.shared.plays).get(&stage)
                && models.keys().all(|model| play.planned_for.0.contains(model))
            {
                routes.extend(play.routes.iter().map(|(model, route)| (*model, route.clone())));
                continue;
            }
            if models.len() < 2 {
                continue;
            }
            let mut models: Vec<(Digest, InPlay)> = models.into_iter().collect();
            models.sort_by_key(|(digest, _)| *digest);
            let shared = self.shared.clone();
            let planned = tokio::task::spawn_blocking(move || {
                plan::plan(&shared.store, &shared.prices, &stage, models)
            });
            match planned.await {
                Ok(Ok((Some(planned), _))) => routes.extend(planned.routes),
                Ok(Ok((None, _))) => {}
                Ok(Err(Failed { why, .. })) => tracing::warn!("no plan for the models: {why}"),
                Err(error) => tracing::warn!("no plan for the models: {error}"),
            }
        }
        routes
    }

    /// Begins a plan, if there is need for one.
    fn begin(&self, stage: &Stage, play: &mut Play) {
        let is_gathering = self.shared.gathering.load(Ordering::SeqCst) > 0;
        let kinds = self.shared.scheduler.kinds();
        if !is_gathering && !play.is_planning && play.is_stale(kinds, Instant::now()) {
            play.is_planning = true;
            let (plays, stage) = (self.clone(), stage.clone());
            tokio::spawn(async move { plays.plan(stage).await });
        }
    }

    /// Lets models come into play together: they are planned for when the guard goes.
    pub(crate) fn gather(&self) -> Gathering<'_> {
        self.shared.gathering.fetch_add(1, Ordering::SeqCst);
        Gathering { plays: self }
    }

    /// Waits until all that is in play is planned for.
    pub(crate) async fn settled(&self) {
        loop {
            let planned = self.shared.planned.notified();
            if !lock(&self.shared.plays).values().any(|play| play.is_planning) {
                return;
            }
            planned.await;
        }
    }

    /// Plans until the plan is for what is in play.
    async fn plan(&self, stage: Stage) {
        let planning = Planning { plays: self, stage: &stage };
        loop {
            let kinds = self.shared.scheduler.kinds();
            let models: Vec<(Digest, InPlay)> = {
                let mut plays = lock(&self.shared.plays);
                let play = plays.entry(stage.clone()).or_default();
                play.forget_idle(Instant::now());
                let mut models: Vec<_> =
                    play.models.iter().map(|(digest, model)| (*digest, model.clone())).collect();
                models.sort_by_key(|(digest, _)| *digest);
                models
            };
            let routes = self.routes(&stage, &models).await;
            let retired = {
                let mut plays = lock(&self.shared.plays);
                let play = plays.entry(stage.clone()).or_default();
                let planned_for = models.iter().map(|(digest, _)| *digest).collect();
                play.publish(routes, (planned_for, kinds))
            };
            self.shared.scheduler.retire(retired);
            let now = Instant::now();
            let kinds = self.shared.scheduler.kinds();
            if !lock(&self.shared.plays).get(&stage).is_some_and(|play| play.is_stale(kinds, now)) {
                break;
            }
        }
        drop(planning);
    }

    /// The routes of models that share something, proven; an error if that could not be found out.
    async fn routes(
        &self,
        stage: &Stage,
        models: &[(Digest, InPlay)],
    ) -> Result<HashMap<Digest, Arc<Prepared>>, Failed> {
        if models.len() < 2 {
            return Ok(HashMap::new());
        }
        (self.shared.progress)("comparing the models");
        let (shared, stage_of, given) = (self.shared.clone(), stage.clone(), models.to_vec());
        let planned = tokio::task::spawn_blocking(move || {
            plan::plan(&shared.store, &shared.prices, &stage_of, given)
        });
        let planned = planned.await;
        let (planned, analysed) = planned.map_err(|error| Failed::here(error.to_string()))??;
        if let Some(play) = lock(&self.shared.plays).get_mut(stage) {
            for (digest, analysed) in analysed {
                if let Some(model) = play.models.get_mut(&digest) {
                    model.analysed = Some(analysed);
                }
            }
        }
        let Some(planned) = planned else { return Ok(HashMap::new()) };
        let samples: HashMap<Digest, Arc<Inputs>> =
            models.iter().map(|(digest, model)| (*digest, model.sample.clone())).collect();
        let proven = prove::prove(&self.shared, stage, &planned, &samples).await?;
        Ok(if proven { planned.routes } else { HashMap::new() })
    }
}

/// While this is there, no plan is begun.
pub(crate) struct Gathering<'a> {
    plays: &'a Plays,
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.plays.shared.gathering.fetch_sub(1, Ordering::SeqCst);
        for (stage, play) in lock(&self.plays.shared.plays).iter_mut() {
            self.plays.begin(stage, play);
        }
    }
}

/// Why nothing is known of a plan.
#[derive(Debug)]
struct Failed {
    why: String,
    /// The model that it is about, which is not in play until it is asked for again.
    model: Option<Digest>,
}

impl Failed {
    fn here(why: String) -> Failed {
        Failed { why, model: None }
    }

    fn with(model: Digest, why: String) -> Failed {
        Failed { why, model: Some(model) }
    }
}

impl Play {
    fn is_used(&self, now: Instant) -> bool {
        self.models.values().any(|model| now - model.used < IDLE)
    }

    /// Takes over what came of planning: if nothing, what was proven before goes on. The routes that
    /// have had their day.
    fn publish(
        &mut self,
        routes: Result<HashMap<Digest, Arc<Prepared>>, Failed>,
        planned_for: (BTreeSet<Digest>, usize),
    ) -> Vec<SegmentId> {
        let routes = match routes {
            Ok(routes) => routes,
            Err(Failed { why, model }) => {
                tracing::warn!("no plan for the models in play: {why}");
                match model {
                    Some(model) => drop(self.models.remove(&model)),
                    None => self.failed_at = Some(Instant::now()),
                }
                return Vec::new();
            }
        };
        self.failed_at = None;
        let old = self.routes.values().map(|route| route.id);
        let whole = routes.values().filter_map(|route| route.alone()).map(|whole| whole.id);
        let mut retired: Vec<SegmentId> = old.chain(whole).collect();
        retired.retain(|id| !routes.values().any(|route| route.id == *id));
        self.routes = routes;
        self.planned_for = planned_for;
        retired
    }
}

/// A plan that is being made. However that ends, whoever waits for it goes on.
struct Planning<'a> {
    plays: &'a Plays,
    stage: &'a Stage,
}

impl Drop for Planning<'_> {
    fn drop(&mut self) {
        if let Some(play) = lock(&self.plays.shared.plays).get_mut(self.stage) {
            play.is_planning = false;
        }
        self.plays.shared.planned.notify_waiters();
    }
}
