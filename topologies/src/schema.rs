//! The JSON Schema of lab files, from the types that read them.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::file::LabFile;

/// JSON Schema (draft 2020-12) of a lab file, for editors. It knows shapes, units and ranges; references between
/// parts of a file are checked only by reading it.
pub fn schema() -> Value {
    schema_of::<LabFile>("Testbed lab file")
}

/// JSON Schema (draft 2020-12) of a file that is read into a `T`.
pub fn schema_of<T: JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), Value::from(title));
    }
    schema
}

/// Gives a scalar its JSON Schema, written where it is used rather than by name.
#[macro_export]
macro_rules! inline_schema {
    ($type:ident, $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
