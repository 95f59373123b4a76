//! Labelled texts, written for this demo: what the classifiers are trained and tested on.

use anyhow::Context;

/// What a classifier is to tell apart.
pub(crate) struct Task {
    pub(crate) name: &'static str,
    /// The classes, in the order of the classifier's output.
    pub(crate) labels: Vec<&'static str>,
    pub(crate) texts: Vec<Labelled>,
}

/// A text and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Labelled {
    pub(crate) text: &'static str,
    /// The position of its label.
    pub(crate) label: usize,
    /// Whether training must not see it.
    pub(crate) held_out: bool,
}

/// One text of so many is held out, in every class.
const HELD_OUT_EVERY: usize = 5;

/// Texts that every task has something to say about, and that none is trained on.
pub(crate) const SHOWN: [&str; 4] = [
    "The payment terminals in all our shops are dead and the queues are furious, fix it right now!",
    "Please bring your wonderful lemon cake to the picnic on Saturday.",
    "One day I would love to see the rings of Saturn through a big telescope.",
    "The striker was injured after ten minutes and we lost every single match since.",
];

/// The three tasks.
pub(crate) fn tasks() -> anyhow::Result<[Task; 3]> {
    Ok([
        read("topic", include_str!("../../../demo/topic.tsv"))?,
        read("sentiment", include_str!("../../../demo/sentiment.tsv"))?,
        read("urgency", include_str!("../../../demo/urgency.tsv"))?,
    ])
}

/// Reads lines of a label, a tab and a text.
fn read(name: &'static str, lines: &'static str) -> anyhow::Result<Task> {
    let mut labels: Vec<&'static str> = Vec::new();
    let mut counts: Vec<usize> = Vec::new();
    let mut texts = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let (label, text) = line
            .split_once('\t')
            .with_context(|| format!("{name}.tsv, line {number}: no tab after the label"))?;
        let known = labels.iter().position(|known| *known == label);
        let label = known.unwrap_or_else(|| {
            labels.push(label);
            counts.push(0);
            labels.len() - 1
        });
        counts[label] += 1;
        texts.push(Labelled {
            text,
            label,
            held_out: counts[label].is_multiple_of(HELD_OUT_EVERY),
        });
    }
    Ok(Task { name, labels, texts })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_class_has_texts_to_learn_from_and_others_to_be_tested_on() {
        for task in tasks().unwrap() {
            assert!((2..=4).contains(&task.labels.len()), "{}", task.name);
            for label in 0..task.labels.len() {
                let of_class = |held_out: bool| {
                    let texts = task.texts.iter();
                    texts.filter(|text| text.label == label && text.held_out == held_out).count()
                };
                assert_eq!((of_class(false), of_class(true)), (36, 9), "{}", task.labels[label]);
            }
        }
    }

    #[test]
    fn no_text_is_there_twice() {
        let tasks = tasks().unwrap();
        let texts = tasks.iter().flat_map(|task| &task.texts).map(|text| text.text);
        let all: Vec<&str> = texts.chain(SHOWN).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_line_without_a_label_is_refused() {
        let error = read("made", "good\tA text.\nAnother text.\n").err().unwrap();
        assert_eq!(error.to_string(), "made.tsv, line 2: no tab after the label");
    }
}
