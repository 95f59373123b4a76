//! Which graph of a model a command means.

use anyhow::bail;
use holdfast_models::{Component, Manifest, Store, StoreError, Variant};

use crate::output::plural;

/// A component that the user asked for.
pub(crate) struct Chosen {
    pub(crate) manifest: Manifest,
    pub(crate) component: Component,
}

/// The component of a model that `--variant` and `--component` mean, or the usual one.
pub(crate) fn choose(
    store: &Store,
    name: &str,
    variant: Option<&str>,
    component: Option<&str>,
) -> anyhow::Result<Chosen> {
    let manifest = store.model(name)?;
    let variant = variant.map(|name| Variant(name.to_owned()));
    if let Some(variant) = &variant
        && !manifest.variants().contains(variant)
    {
        let available = manifest.variants().iter().map(ToString::to_string).collect();
        let (of, asked) = (name.to_owned(), variant.to_string());
        return Err(StoreError::NoSuchVariant { of, asked, available }.into());
    }
    let components = manifest.choose(variant.as_ref());
    let roles: Vec<String> = components.iter().map(|c| c.role.to_string()).collect();
    let component = match (component, components.as_slice()) {
        (None, [only]) => *only,
        (None, several) => match several.iter().find(|component| component.role.0 == "model") {
            Some(component) => component,
            None => bail!(
                "`{name}` has {}; choose with --component: {}",
                plural(several.len(), "component"),
                roles.join(", ")
            ),
        },
        (Some(role), all) => {
            let found = all.iter().find(|component| component.role.0 == role);
            found.ok_or_else(|| StoreError::NoSuchComponent {
                model: name.to_owned(),
                role: role.to_owned(),
                available: roles,
            })?
        }
    };
    Ok(Chosen { component: component.clone(), manifest })
}
