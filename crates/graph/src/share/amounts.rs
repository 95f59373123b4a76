//! Amounts for people, the same in every picture of a plan.

/// A size.
pub(super) fn bytes(count: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let unit = units.iter().find(|(_, size)| count as f64 >= *size);
    unit.map_or(format!("{count} B"), |(name, size)| format!("{:.1} {name}", count as f64 / size))
}

/// A number of operations.
pub(super) fn operations(count: u64) -> String {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let unit = units.iter().find(|(_, size)| count as f64 >= *size);
    unit.map_or(format!("{count} FLOP"), |(name, size)| {
        format!("{:.1} {name}FLOP", count as f64 / size)
    })
}

/// `1 model`, `2 models`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_largest_unit_that_fits() {
        assert_eq!([0, 999, 1000, 44_400_000].map(bytes), ["0 B", "999 B", "1.0 kB", "44.4 MB"]);
        assert_eq!(
            [12, 8_500, 881_800_000].map(operations),
            ["12 FLOP", "8.5 kFLOP", "881.8 MFLOP"]
        );
    }
}
