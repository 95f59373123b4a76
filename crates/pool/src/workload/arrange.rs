//! Which requests run at once, and which one after the other.

use std::sync::Arc;

use holdfast_predict::Strategy;

use crate::route::Prepared;

/// Stages, each of positions of requests. Every request is in one of them.
pub(super) type Stages = Vec<Vec<usize>>;

/// Arranges requests, given by the routes of their models, in groups of at most `batching` where
/// the strategy makes groups.
pub(super) fn arrange(strategy: Strategy, routes: &[Arc<Prepared>], batching: usize) -> Stages {
    let all = || (0..routes.len()).collect::<Vec<usize>>();
    match strategy {
        Strategy::Parallel => vec![all()],
        Strategy::Sequential => all().into_iter().map(|request| vec![request]).collect(),
        Strategy::Batched => {
            let first = |request: usize| {
                routes.iter().position(|route| route.id == routes[request].id).unwrap_or(request)
            };
            // Requests for one model come together, because they can run in one go.
            let mut ordered = all();
            ordered.sort_by_key(|&request| first(request));
            ordered.chunks(batching.max(1)).map(<[usize]>::to_vec).collect()
        }
    }
}
