//! Holds Python's cyclic garbage collector off while many objects are built.

use pyo3::intern;
use pyo3::prelude::*;

/// While it lives, the collector does not run by itself.
///
/// A record is some hundred thousand new objects, none of them garbage. The collector counts
/// them and walks all of them again and again (half the time of building token arrays); after
/// the pause it looks at them once. Nothing else runs meanwhile: who builds is attached.
pub struct GcPause<'py>(Option<Bound<'py, PyModule>>);

impl<'py> GcPause<'py> {
    /// Pauses the collector where it is on.
    pub fn new(py: Python<'py>) -> Self {
        let pause = || -> PyResult<Option<Bound<'py, PyModule>>> {
            let gc = py.import(intern!(py, "gc"))?;
            let enabled: bool = gc.call_method0(intern!(py, "isenabled"))?.extract()?;
            if enabled {
                gc.call_method0(intern!(py, "disable"))?;
            }
            Ok(enabled.then_some(gc))
        };
        // Without a collector to pause (an embedded interpreter, say) there is nothing to do.
        Self(pause().unwrap_or_default())
    }
}

impl Drop for GcPause<'_> {
    fn drop(&mut self) {
        if let Some(gc) = &self.0 {
            let _ = gc.call_method0(intern!(gc.py(), "enable"));
        }
    }
}
