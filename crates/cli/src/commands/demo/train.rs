//! Trains a head on embeddings: a dense layer, tanh, and a classifier, by Adam.
//!
//! The trunk stays frozen, so a text is embedded once, and what is left is small enough for plain
//! Rust. Everything is seeded: the same embeddings give the same head.

use holdfast_testkit::{Init, Numbers, Weights};

use super::head::Head;

/// An embedded text and its class.
pub(crate) struct Example {
    pub(crate) embedding: Vec<f32>,
    pub(crate) label: usize,
}

const SEED: u64 = 7;
const EPOCHS: usize = 24;
const BATCH: usize = 16;
const RATE: f32 = 5e-4;
/// How fast weights shrink that nothing needs, relative to the rate.
const DECAY: f32 = 0.02;

/// Learns to tell `classes` apart.
pub(crate) fn train(examples: &[Example], classes: usize) -> anyhow::Result<Head> {
    let hidden = examples.first().map_or(0, |example| example.embedding.len());
    let mut head = draw(hidden, classes, SEED)?;
    let mut moments: [Moments; 4] =
        [&head.dense, &head.dense_bias, &head.classifier, &head.classifier_bias]
            .map(|parameters| Moments::new(parameters.len()));
    let mut order: Vec<usize> = (0..examples.len()).collect();
    let mut numbers = Numbers::new(SEED);
    for _ in 0..EPOCHS {
        numbers.shuffle(&mut order);
        for batch in order.chunks(BATCH) {
            let mut gradient = Head::zeros(hidden, classes);
            for &example in batch {
                add_gradient(&head, &examples[example], 1.0 / batch.len() as f32, &mut gradient);
            }
            let gradients = gradient.parameters();
            for ((parameters, gradient), moments) in
                head.parameters_mut().into_iter().zip(gradients).zip(&mut moments)
            {
                moments.step(parameters, gradient);
            }
        }
    }
    Ok(head)
}

/// How many examples a head gets right.
pub(crate) fn right(head: &Head, examples: &[Example]) -> usize {
    let is_right = |example: &&Example| {
        let (_, logits) = forward(head, &example.embedding);
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        best == Some(example.label)
    };
    examples.iter().filter(is_right).count()
}

/// A head that knows nothing yet.
pub(crate) fn draw(hidden: usize, classes: usize, seed: u64) -> anyhow::Result<Head> {
    let weights = Weights::new(seed);
    let dense = weights.draw("dense", &[hidden, hidden], Init::fan_in(hidden))?;
    let classifier = weights.draw("classifier", &[hidden, classes], Init::fan_in(hidden))?;
    Ok(Head {
        dense: dense.to_vec()?,
        classifier: classifier.to_vec()?,
        ..Head::zeros(hidden, classes)
    })
}

/// What the dense layer and the classifier give.
fn forward(head: &Head, embedding: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut inner = head.dense_bias.clone();
    add_product(embedding, &head.dense, &mut inner);
    inner.iter_mut().for_each(|value| *value = value.tanh());
    let mut logits = head.classifier_bias.clone();
    add_product(&inner, &head.classifier, &mut logits);
    (inner, logits)
}

/// Adds how the loss of one example changes with each parameter.
fn add_gradient(head: &Head, example: &Example, share: f32, gradient: &mut Head) {
    let (inner, logits) = forward(head, &example.embedding);
    // The derivative of the cross entropy: what was said minus what is right.
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    let mut outer: Vec<f32> = powers.iter().map(|power| share * power / sum).collect();
    outer[example.label] -= share;
    let classes = outer.len();
    let before = inner.iter().zip(head.classifier.chunks(classes)).map(|(value, row)| {
        let back: f32 = row.iter().zip(&outer).map(|(weight, error)| weight * error).sum();
        back * (1.0 - value * value)
    });
    let before: Vec<f32> = before.collect();
    add_outer(&inner, &outer, &mut gradient.classifier);
    add(&outer, 1.0, &mut gradient.classifier_bias);
    add_outer(&example.embedding, &before, &mut gradient.dense);
    add(&before, 1.0, &mut gradient.dense_bias);
}

/// `to += vector · matrix`, row by row, which is how the matrix lies in memory.
fn add_product(vector: &[f32], matrix: &[f32], to: &mut [f32]) {
    for (value, row) in vector.iter().zip(matrix.chunks(to.len())) {
        add(row, *value, to);
    }
}

/// `to += column · row`.
fn add_outer(column: &[f32], row: &[f32], to: &mut [f32]) {
    for (value, to) in column.iter().zip(to.chunks_mut(row.len())) {
        add(row, *value, to);
    }
}

fn add(values: &[f32], factor: f32, to: &mut [f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += factor * value;
    }
}

/// What Adam remembers of some parameters' gradients.
struct Moments {
    mean: Vec<f32>,
    square: Vec<f32>,
    steps: i32,
}

impl Moments {
    const KEPT: [f32; 2] = [0.9, 0.999];

    fn new(count: usize) -> Moments {
        Moments { mean: vec![0.0; count], square: vec![0.0; count], steps: 0 }
    }

    fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.steps += 1;
        let [keep_mean, keep_square] = Moments::KEPT;
        // Both start at zero and are too small at first.
        let mean_part = 1.0 - keep_mean.powi(self.steps);
        let square_part = 1.0 - keep_square.powi(self.steps);
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            *mean += (1.0 - keep_mean) * (gradient - *mean);
            *square += (1.0 - keep_square) * (gradient * gradient - *square);
            let step = (*mean / mean_part) / ((*square / square_part).sqrt() + 1e-8);
            *parameter -= RATE * (step + DECAY * *parameter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points in a plane: which side of a curve they are on decides their class.
    fn points(count: usize, seed: u64, label: impl Fn(f32, f32) -> usize) -> Vec<Example> {
        let mut numbers = Numbers::new(seed);
        let mut coordinate = || numbers.below(2001) as f32 / 500.0 - 2.0;
        let point = |_| {
            let (x, y) = (coordinate(), coordinate());
            let padding = std::iter::repeat_n(0.0, 14);
            Example { embedding: [x, y].into_iter().chain(padding).collect(), label: label(x, y) }
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn learns_what_a_line_cannot_tell_apart() {
        let rings = |x: f32, y: f32| usize::from(x * x + y * y < 2.0);
        let head = train(&points(6000, 1, rings), 2).unwrap();
        let right = right(&head, &points(1000, 2, rings));
        assert!(right > 900, "{right}");
    }

    #[test]
    fn does_not_learn_what_is_chance() {
        let mut coin = Numbers::new(9);
        let flips: Vec<usize> = (0..1200).map(|_| coin.below(2)).collect();
        let mut examples = points(600, 1, |_, _| 0);
        examples.iter_mut().zip(&flips).for_each(|(example, flip)| example.label = *flip);
        let head = train(&examples, 2).unwrap();
        let mut fresh = points(600, 2, |_, _| 0);
        fresh.iter_mut().zip(&flips[600..]).for_each(|(example, flip)| example.label = *flip);
        assert!((200..400).contains(&right(&head, &fresh)));
    }

    #[test]
    fn the_same_examples_give_the_same_head() {
        let sides = |x: f32, _: f32| usize::from(x > 0.0);
        let train = |seed| train(&points(600, seed, sides), 2).unwrap();
        assert_eq!(train(1), train(1));
        assert_ne!(train(1), train(2));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let examples = points(1, 3, |x, y| usize::from(x > y));
        let head = draw(16, 2, 5).unwrap();
        let loss = |head: &Head| {
            let (_, logits) = forward(head, &examples[0].embedding);
            let sum: f32 = logits.iter().map(|logit| logit.exp()).sum();
            sum.ln() - logits[examples[0].label]
        };
        let mut gradient = Head::zeros(16, 2);
        add_gradient(&head, &examples[0], 1.0, &mut gradient);
        for part in 0..4 {
            let (mut more, mut less) = (head.clone(), head.clone());
            more.parameters_mut()[part][1] += 1e-2;
            less.parameters_mut()[part][1] -= 1e-2;
            let slope = (loss(&more) - loss(&less)) / 2e-2;
            assert!((slope - gradient.parameters()[part][1]).abs() < 1e-3, "part {part}: {slope}");
        }
    }
}
