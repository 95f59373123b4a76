//! The cheapest cut of a network, by maximum flow (Dinic's algorithm).
//!
//! Which part of a graph to compute once is a choice of yes or no for every node, where some
//! choices force others and some pairs of choices cost something. Such a choice is a cut of a
//! network: edges say "if the first is on the source's side, the second is too, or pay".

use std::collections::VecDeque;

/// What no cut can afford.
pub(super) const FORBIDDEN: u64 = u64::MAX / 4;

/// A directed network between a source and a sink.
pub(super) struct Network {
    edges: Vec<Edge>,
    /// The edges that leave each vertex, by their index.
    leaving: Vec<Vec<usize>>,
}

struct Edge {
    to: usize,
    left: u64,
}

impl Network {
    pub(super) const SOURCE: usize = 0;
    pub(super) const SINK: usize = 1;

    pub(super) fn new() -> Network {
        Network { edges: Vec::new(), leaving: vec![Vec::new(), Vec::new()] }
    }

    pub(super) fn vertex(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    /// Having `from` on the source's side and `to` on the sink's costs `price`.
    pub(super) fn edge(&mut self, from: usize, to: usize, price: u64) {
        // An edge and its reverse are neighbours: `index ^ 1` is the other one.
        self.leaving[from].push(self.edges.len());
        self.edges.push(Edge { to, left: price.min(FORBIDDEN) });
        self.leaving[to].push(self.edges.len());
        self.edges.push(Edge { to: from, left: 0 });
    }

    /// The price of the cheapest cut, and which vertices are on the source's side of it. Of
    /// several cuts at one price, it is the one with the fewest there, so the answer is unique.
    pub(super) fn cheapest_cut(mut self) -> (u64, Vec<bool>) {
        let mut price = 0u64;
        loop {
            let distances = self.distances();
            if distances[Self::SINK].is_none() {
                let source_side = distances.iter().map(Option::is_some).collect();
                return (price, source_side);
            }
            price = price.saturating_add(self.block(&distances));
        }
    }

    /// How many edges with room lie between the source and each vertex.
    fn distances(&self) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.leaving.len()];
        distances[Self::SOURCE] = Some(0);
        let mut waiting = VecDeque::from([(Self::SOURCE, 0)]);
        while let Some((vertex, distance)) = waiting.pop_front() {
            for edge in self.leaving[vertex].iter().map(|&index| &self.edges[index]) {
                if edge.left > 0 && distances[edge.to].is_none() {
                    distances[edge.to] = Some(distance + 1);
                    waiting.push_back((edge.to, distance + 1));
                }
            }
        }
        distances
    }

    /// Fills every shortest way to the sink. Without recursion: graphs are deeper than stacks.
    fn block(&mut self, distances: &[Option<usize>]) -> u64 {
        let mut next = vec![0; self.leaving.len()];
        let mut path: Vec<usize> = Vec::new();
        let mut total = 0u64;
        loop {
            let vertex = path.last().map_or(Self::SOURCE, |&edge| self.edges[edge].to);
            if vertex == Self::SINK {
                let room = path.iter().map(|&edge| self.edges[edge].left).min().unwrap_or(0);
                total = total.saturating_add(room);
                for &edge in &path {
                    self.edges[edge].left -= room;
                    self.edges[edge ^ 1].left += room;
                }
                // Go on from the last vertex that can still be left the same way.
                let full = path.iter().position(|&edge| self.edges[edge].left == 0);
                path.truncate(full.unwrap_or(0));
                continue;
            }
            let Some(&edge) = self.leaving[vertex].get(next[vertex]) else {
                // Nothing leads on from here: go back, and do not come again.
                let Some(back) = path.pop() else { return total };
                next[self.edges[back ^ 1].to] += 1;
                continue;
            };
            let Edge { to, left } = self.edges[edge];
            if left > 0 && distances[to] == distances[vertex].map(|distance| distance + 1) {
                path.push(edge);
            } else {
                next[vertex] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheapest cut of a network of `vertices` beside source (0) and sink (1).
    fn check(vertices: usize, edges: &[(usize, usize, u64)], price: u64, source_side: &[usize]) {
        let mut network = Network::new();
        for _ in 0..vertices {
            network.vertex();
        }
        for &(from, to, price) in edges {
            network.edge(from, to, price);
        }
        let (found, side) = network.cheapest_cut();
        let side: Vec<usize> = (0..side.len()).filter(|&vertex| side[vertex]).collect();
        assert_eq!((found, side.as_slice()), (price, source_side));
    }

    #[test]
    fn the_narrowest_place_is_cut() {
        check(2, &[(0, 2, 5), (2, 3, 2), (3, 1, 9)], 2, &[0, 2]);
        check(2, &[(0, 2, 5), (2, 3, 9), (3, 1, 2)], 2, &[0, 2, 3]);
    }

    #[test]
    fn of_equal_cuts_the_one_at_the_source_is_taken() {
        check(2, &[(0, 2, 3), (2, 3, 3), (3, 1, 3)], 3, &[0]);
    }

    #[test]
    fn a_flow_is_taken_back_where_another_way_is_better() {
        // The shortest way uses the edge between the two, which no best flow does.
        let edges = [(0, 2, 1), (0, 3, 1), (2, 3, 1), (2, 1, 1), (3, 1, 1)];
        check(2, &edges, 2, &[0]);
    }

    #[test]
    fn what_is_forbidden_is_never_cut_and_nothing_costs_nothing() {
        check(1, &[(0, 2, FORBIDDEN), (2, 1, 7)], 7, &[0, 2]);
        check(1, &[(0, 2, 7)], 0, &[0, 2]);
    }

    /// Against every cut there is, on small random networks.
    #[test]
    fn no_other_cut_is_cheaper() {
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % limit
        };
        for _ in 0..300 {
            let edges: Vec<(usize, usize, u64)> =
                (0..12).map(|_| (below(7) as usize, below(7) as usize, below(9))).collect();
            let mut network = Network::new();
            for _ in 0..5 {
                network.vertex();
            }
            edges.iter().for_each(|&(from, to, price)| network.edge(from, to, price));
            let (found, side) = network.cheapest_cut();
            let price_of = |on_source_side: &dyn Fn(usize) -> bool| -> u64 {
                let cut = |&&(from, to, _): &&_| on_source_side(from) && !on_source_side(to);
                edges.iter().filter(cut).map(|&(_, _, price)| price).sum()
            };
            let all = (0..32usize).map(|chosen| {
                price_of(&|vertex| vertex == 0 || vertex > 1 && chosen >> (vertex - 2) & 1 == 1)
            });
            assert_eq!(found, all.min().unwrap());
            assert_eq!(found, price_of(&|vertex| side[vertex]));
        }
    }
}
