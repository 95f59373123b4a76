//! The commands that use a browser, as a person types them.
