//! Holds Python's cyclic garbage collector off while many objects are built.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// While it lives, the collector does not run by itself.
///
/// A record is some hundred thousand new objects, none of them garbage. The collector counts
/// them and walks all of them again and again (half the time of building token arrays); after
/// the pause it looks at them once. Where the builder
/// lets other threads in, what they make is looked at then too.
pub struct GcPause<'py>(Option<&'py Py<PyAny>>, Python<'py>);

impl<'py> GcPause<'py> {
    /// Pauses the collector where it is on.
    pub fn new(py: Python<'py>) -> Self {
        static CALLS: [PyOnceLock<Py<PyAny>>; 3] = [const { PyOnceLock::new() }; 3];
        let pause = || -> PyResult<_> {
            let [is_enabled, disable, enable] = &CALLS;
            let enabled: bool = is_enabled
                .import(py, "gc", "isenabled")?
                .call0()?
                .extract()?;
            if !enabled {
                return Ok(None);
            }
            enable.import(py, "gc", "enable")?;
            disable.import(py, "gc", "disable")?.call0()?;
            Ok(enable.get(py))
        };
        // Without a collector to pause (an embedded interpreter, say) there is nothing to do.
        Self(pause().unwrap_or_default(), py)
    }
}

impl Drop for GcPause<'_> {
    fn drop(&mut self) {
        if let Some(enable) = self.0 {
            let _ = enable.call0(self.1);
        }
    }
}
