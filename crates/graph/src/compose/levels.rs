//! In which order stages and common products follow each other.
//!
//! ```text
//! stage 0 ─► products of level 1 ─► stage 1 ─► products of level 2 ─► …
//! ```
//!
//! A product is at the first level at which all models have its operand, and every other node is in
//! the first stage after all products that it depends on. Where two models do products in opposite
//! orders, no level suits both, so one of the products stays inside.

use super::anchors::Anchor;
use super::named::Named;

/// The levels of common products, and the stages of everything else.
pub(super) struct Levels {
    /// The common products of each level, of which the first is level 1.
    anchors: Vec<Vec<Anchor>>,
    /// For every part and node, the stage it is in; for a common product, its level.
    stages: Vec<Vec<usize>>,
}

impl Levels {
    pub(super) fn new(parts: &[Named<'_>], anchors: Vec<Anchor>) -> Levels {
        let levels = levels(&before(parts, &anchors));
        let mut by_level = vec![Vec::new(); levels.iter().flatten().copied().max().unwrap_or(0)];
        for (anchor, level) in anchors.into_iter().zip(&levels) {
            if let Some(level) = level {
                by_level[level - 1].push(anchor);
            }
        }
        let stages = parts.iter().map(|part| stages(part, &by_level)).collect();
        Levels { anchors: by_level, stages }
    }

    /// The common products of a level; there are none at level 0.
    pub(super) fn anchors(&self, level: usize) -> &[Anchor] {
        let place = level.checked_sub(1);
        place.and_then(|place| self.anchors.get(place)).map_or(&[], Vec::as_slice)
    }

    /// The number of stages.
    pub(super) fn count(&self) -> usize {
        self.anchors.len() + 1
    }

    /// The stage in which a value of a part is computed, or after which common product it is there;
    /// the first for inputs and weights.
    pub(super) fn stage(&self, part: &Named<'_>, value: &str) -> usize {
        let producer = part.producers.get(value);
        producer.map_or(0, |&node| self.stages[part.number][node])
    }

    /// The nodes of a part in a stage, each after those that it needs.
    pub(super) fn nodes<'a>(
        &'a self,
        part: &'a Named<'_>,
        stage: usize,
    ) -> impl Iterator<Item = usize> {
        let in_stage = move |node: &usize| self.stages[part.number][*node] == stage;
        let is_outside =
            move |node: usize| self.anchors(stage).iter().any(|anchor| anchor[part.number] == node);
        part.order.iter().copied().filter(in_stage).filter(move |&node| !is_outside(node))
    }

    /// Whether a value is the result of a common product.
    pub(super) fn is_anchor(&self, part: &Named<'_>, value: &str) -> bool {
        let Some(&node) = part.producers.get(value) else { return false };
        let level = self.stages[part.number][node];
        self.anchors(level).iter().any(|anchor| anchor[part.number] == node)
    }
}

/// For every anchor, which ones come before it in some part.
fn before(parts: &[Named<'_>], anchors: &[Anchor]) -> Vec<Vec<bool>> {
    let mut before = vec![vec![false; anchors.len()]; anchors.len()];
    for part in parts {
        let mut anchor_of = vec![None; part.graph.node.len()];
        for (number, anchor) in anchors.iter().enumerate() {
            anchor_of[anchor[part.number]] = Some(number);
        }
        let mut behind = vec![vec![false; anchors.len()]; part.graph.node.len()];
        for &node in &part.order {
            let mut found = vec![false; anchors.len()];
            for producer in part.producers_for(node) {
                join(&mut found, &behind[producer]);
                if let Some(anchor) = anchor_of[producer] {
                    found[anchor] = true;
                }
            }
            if let Some(anchor) = anchor_of[node] {
                join(&mut before[anchor], &found);
            }
            behind[node] = found;
        }
    }
    before
}

fn join(all: &mut [bool], more: &[bool]) {
    all.iter_mut().zip(more).for_each(|(all, &more)| *all |= more);
}

/// The level of every anchor, beginning with 1; `None` for those that have to stay inside.
fn levels(before: &[Vec<bool>]) -> Vec<Option<usize>> {
    let mut levels = vec![None; before.len()];
    let mut waiting: Vec<usize> = (0..before.len()).collect();
    let mut level = 1;
    while !waiting.is_empty() {
        let is_ready = |&anchor: &usize| !waiting.iter().any(|&other| before[anchor][other]);
        let (ready, later): (Vec<usize>, Vec<usize>) = waiting.iter().partition(|&a| is_ready(a));
        if ready.is_empty() {
            // The one on whose place the models agree least.
            let conflicts = |anchor: usize| {
                waiting
                    .iter()
                    .filter(|&&other| before[anchor][other] && before[other][anchor])
                    .count()
            };
            let worst = waiting.iter().copied().max_by_key(|&anchor| conflicts(anchor));
            waiting.retain(|&anchor| Some(anchor) != worst);
            continue;
        }
        ready.iter().for_each(|&anchor| levels[anchor] = Some(level));
        waiting = later;
        level += 1;
    }
    levels
}

/// The stage of every node of a part.
fn stages(part: &Named<'_>, anchors: &[Vec<Anchor>]) -> Vec<usize> {
    let mut stages = vec![0; part.graph.node.len()];
    for (level, anchor) in (1..).zip(anchors).flat_map(|(l, of)| of.iter().map(move |a| (l, a))) {
        stages[anchor[part.number]] = level;
    }
    for &node in &part.order {
        let earliest = part.producers_for(node).map(|producer| stages[producer]).max();
        stages[node] = stages[node].max(earliest.unwrap_or(0));
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::levels;

    fn check(count: usize, pairs: &[(usize, usize)], expected: &[Option<usize>]) {
        let before: Vec<Vec<bool>> = (0..count)
            .map(|later| (0..count).map(|earlier| pairs.contains(&(earlier, later))).collect())
            .collect();
        assert_eq!(levels(&before), expected);
    }

    #[test]
    fn a_product_follows_all_that_it_depends_on_in_any_model() {
        check(0, &[], &[]);
        check(3, &[(0, 2), (1, 2)], &[Some(1), Some(1), Some(2)]);
        check(3, &[(2, 1), (1, 0), (2, 0)], &[Some(3), Some(2), Some(1)]);
    }

    #[test]
    fn of_products_in_opposite_orders_the_one_with_the_most_conflicts_stays_inside() {
        // One model does 0 before the others, another after them.
        let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (1, 0), (2, 0), (3, 0)];
        check(4, &pairs, &[None, Some(1), Some(2), Some(3)]);
        // A circle that no two models make alone.
        let levels_of_circle = [Some(1), Some(2), None];
        check(3, &[(0, 1), (1, 2), (2, 0)], &levels_of_circle);
    }
}
