//! Several models on one input: what they have in common is computed once, their heads follow in
//! the same program.

use super::queue::Waiter;
use super::together::{free, run_alone, tell};
use super::turn::{Lease, Used};
use crate::program::{self, Asked};

/// Runs requests in one program and answers everyone.
pub(super) async fn run(mut parts: Vec<(Waiter, Lease)>) {
    // Nothing is computed for those who have left.
    parts.retain(|(waiter, _)| !waiter.turn.is_closed());
    let with_inputs = |(waiter, lease): &(Waiter, Lease)| {
        let inputs = waiter.inputs.clone().unwrap_or_default();
        (inputs, lease.granted.clone())
    };
    let kept: Vec<_> = parts.iter().map(with_inputs).collect();
    let asked: Vec<Asked<'_>> = kept
        .iter()
        .map(|(inputs, granted)| Asked {
            model: &granted.model,
            inputs,
            values: granted.values.as_deref(),
            there: &granted.there,
        })
        .collect();
    let Some((_, first)) = kept.first() else { return };
    let Some((_, lease)) = parts.first_mut() else { return };
    match program::run(first.device.as_ref(), &asked, None, &mut lease.kept).await {
        Ok(mut ran) => {
            let answers = std::mem::take(&mut ran.answers);
            // Only the first has anything left to tell: what was measured counts once.
            for (_, lease) in &mut parts {
                lease.used = Used::among_others(std::mem::take(&mut ran.steps));
            }
            for ((waiter, lease), answered) in parts.into_iter().zip(answers) {
                let granted = free(lease);
                tell(waiter, &granted, 1, Ok(answered));
            }
        }
        Err(error) => {
            let Some((_, lease)) = parts.first_mut() else { return };
            let failed = lease.failed(error);
            if !failed.is_about_one() {
                for (waiter, lease) in parts {
                    let granted = free(lease);
                    tell(waiter, &granted, 1, Err(failed.for_another()));
                }
                return;
            }
            // One of them may be wrong, which is no reason for the others to fail.
            for ((waiter, mut lease), (inputs, _)) in parts.into_iter().zip(&kept) {
                let result = run_alone(&mut lease, inputs, None).await;
                let result = match result {
                    Ok((answered, ran)) => {
                        lease.used = Used::well(1, ran);
                        Ok(answered)
                    }
                    Err(error) => Err(lease.failed(error)),
                };
                let granted = free(lease);
                tell(waiter, &granted, 1, result);
            }
        }
    }
}
