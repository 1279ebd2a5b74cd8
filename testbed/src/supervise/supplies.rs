//! What a lab needs of the world's kernel beyond what every lab needs: provided when the lab comes, not when the world
//! starts, because an edit may ask for more than the lab that the world was made for.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use topologies::lab::Lab;

use crate::apply::linux;
use crate::carrier::choose;
use crate::carrier::features::Feature;
use crate::carrier::modules;
use crate::failure::{Code, Failure};
use crate::plan::Options;

/// The kernel's abilities, as far as they have been tried.
pub struct Supplies {
    /// Folder of module files, in a guest; elsewhere the kernel loads them by itself.
    folder: Option<PathBuf>,
    options: RwLock<Options>,
}

impl Supplies {
    /// Tries what the kernel can do as it is.
    pub fn new(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self { folder, options: RwLock::new(linux::probe()?) })
    }

    /// What the kernel can do.
    pub fn options(&self) -> Options {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the kernel able to hold a lab.
    ///
    /// # Errors
    /// It cannot be: the message names what it lacks.
    pub fn provide(&self, lab: &Lab) -> anyhow::Result<Options> {
        let lacking = |need| {
            Failure::new(Code::Lacking, format!("the kernel that lab {} runs on lacks {need}", lab.name))
                .hint("`testbed doctor` lists what this machine has; take out of the lab file what needs it")
        };
        self.have(&choose::needs(lab), lacking)
    }

    /// Makes the kernel able to break something.
    ///
    /// # Errors
    /// It cannot be: the message says what for, and names what the kernel lacks.
    pub fn provide_for(&self, fault: &str, needs: &[Feature]) -> anyhow::Result<Options> {
        let lacking = |need| {
            Failure::new(Code::Lacking, format!("{fault} needs {need}, which the lab's kernel lacks")).hint(
                "`testbed doctor` lists what this machine has; `up --carrier vm` brings a kernel that has it",
            )
        };
        self.have(needs, lacking)
    }

    fn have(&self, needs: &[Feature], lacking: impl Fn(Feature) -> Failure) -> anyhow::Result<Options> {
        if missing(needs, self.options()).is_none() {
            return Ok(self.options());
        }
        if let Some(folder) = &self.folder {
            let names: Vec<&str> = needs.iter().filter_map(|need| need.module()).collect();
            modules::load(folder, &names)?;
        }
        let options = linux::probe()?;
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
        missing(needs, options).map_or(Ok(options), |need| Err(lacking(need).into()))
    }
}

/// The first need that is not met; needs of every lab have been looked at before the world was started.
fn missing(needs: &[Feature], options: Options) -> Option<Feature> {
    needs.iter().copied().find(|need| match need {
        Feature::Netem => !options.delay,
        Feature::Bonds => !options.bonds,
        Feature::Filters => !options.filters,
        Feature::Macsec => !options.macsec,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_what_was_tried_and_failed() {
        let needs = [Feature::MplsRoutes, Feature::Netem, Feature::Bonds];
        let full = Options::full();
        assert_eq!(missing(&needs, full), None);
        assert_eq!(missing(&needs, Options { bonds: false, ..full }), Some(Feature::Bonds));
        assert_eq!(missing(&needs, Options { delay: false, ..full }), Some(Feature::Netem));
        assert_eq!(missing(&[Feature::MplsRoutes], Options::basic()), None);
    }
}
