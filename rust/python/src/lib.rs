//! The extension module `rollfold._core`: converts arguments, detaches from the
//! interpreter, converts results; nothing else.

mod ffi;
mod fold;
mod gc_pause;
mod json;
mod log;
mod pack;
mod recording;
mod store;
mod stream;

use ffi::fresh_bytes;
use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add(
            "build_profile",
            if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
        )?;
        super::fold::register(module)?;
        super::json::register(module)?;
        super::log::register(module)?;
        super::pack::register(module)?;
        super::recording::register(module)?;
        super::store::register(module)?;
        super::stream::register(module)
    }
}
