//! Names: what a caller calls a tensor.

use std::fmt;

/// A tensor's name in a caller's namespace. A caller reaches no other namespace than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a> {
    /// Whose name it is. Empty for the owner of the manager itself.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Bytes that a name or namespace has at most.
pub const MAX_NAME_BYTES: usize = 256;

impl<'a> Key<'a> {
    /// A name in a namespace.
    pub fn new(namespace: &'a str, name: &'a str) -> Key<'a> {
        Key { namespace, name }
    }

    /// Whether something may be called so.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |text: &str| text.len() <= MAX_NAME_BYTES && !text.contains(char::is_control);
        !self.name.is_empty() && plain(self.name) && plain(self.namespace)
    }
}

/// A name in the manager's own namespace.
impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Key<'a> {
        Key { namespace: "", name }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
