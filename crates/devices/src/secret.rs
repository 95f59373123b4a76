//! Secrets: what a link, a socket, a lane or a control request has to know.

use std::fmt;

/// Something that nobody can guess, and that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A new one, of 128 random bits.
    pub fn random() -> Secret {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// One that was agreed on elsewhere. `None` if it is too short to be a secret, or has
    /// characters that do not survive in a link and a header.
    pub fn parse(text: &str) -> Option<Secret> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_good = (16..=256).contains(&text.len()) && text.bytes().all(is_plain);
        is_good.then(|| Secret(text.to_owned()))
    }

    /// Whether this is it. How long the answer takes does not tell how much was right.
    pub fn matches(&self, guess: &str) -> bool {
        is_same(&self.0, guess)
    }

    /// The secret itself, to hand it to someone who may know it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// Compares without telling by the time it takes how much was right.
pub(crate) fn is_same(secret: &str, guess: &str) -> bool {
    let pairs = secret.bytes().zip(guess.bytes());
    let different = pairs.fold(0, |different, (a, b)| different | (a ^ b));
    guess.len() == secret.len() && std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_itself_and_nothing_else() {
        let secret = Secret::random();
        assert!(secret.matches(secret.reveal()));
        assert!(!secret.matches(Secret::random().reveal()));
        assert!(!secret.matches(""));
        assert!(!secret.matches(&secret.reveal()[1..]));
        assert!(!secret.matches(&format!("{}0", secret.reveal())));
    }

    #[test]
    fn takes_what_fits_a_link_and_a_header() {
        assert!(Secret::parse("0123456789abcdef-_XY").is_some());
        assert!(Secret::parse("short").is_none());
        assert!(Secret::parse("0123456789abcdef, holdfast.v1").is_none());
        assert!(Secret::parse(&"a".repeat(257)).is_none());
    }

    #[test]
    fn does_not_show_in_a_log() {
        let secret = Secret::random();
        assert!(!format!("{secret:?}").contains(secret.reveal()));
    }
}
