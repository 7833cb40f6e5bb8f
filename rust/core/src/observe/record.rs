//! Records of the known kinds, as tables of their fields (contract, section 6).

use std::borrow::Cow;

use super::field::{Field, FieldType, Malformed, NonFinite, Reference};
use super::part::Part;
use crate::json::{Kind, Raw};
use crate::value::{Key, Members, Value, unique_members};

use FieldType::{
    Amount, Count, Integer, Items, Number, References, RequiredText, RequiredWord, Status, Text,
    Word,
};

const INVOCATION_STATUS: &[&str] = &["completed", "failed", "incomplete", "unknown"];
/// How an execution of a tool can have ended.
pub const TOOL_STATUS: &[&str] = &[
    "completed",
    "failed",
    "timeout",
    "cancelled",
    "incomplete",
    "unknown",
];
/// Who took a tool call's times.
pub const TIMING_SOURCE: &[&str] = &["executor", "artifact", "harness"];
const COMPACTION_OUTCOME: &[&str] = &["completed", "failed", "aborted", "unknown"];
const SANDBOX_ROLE: &[&str] = &["agent", "verifier", "environment"];
const SANDBOX_OUTCOME: &[&str] = &[
    "completed",
    "failed",
    "timeout",
    "oom",
    "sandbox_error",
    "cancelled",
    "unknown",
];

/// A kind of record: the fields it has after `kind`, in order.
#[derive(Debug)]
pub struct Schema {
    /// The value of `kind`; none for what is no observation.
    pub kind: Option<&'static str>,
    /// Names and types.
    pub fields: &'static [(&'static str, FieldType)],
}

/// One conversation of the root agent or of a subagent.
pub static INVOCATION: Schema = Schema {
    kind: Some("agent_invocation"),
    fields: &[
        ("invocation_id", RequiredText),
        ("parent_invocation_id", Text),
        ("spawned_by_tool_call_id", Text),
        ("status", Status(INVOCATION_STATUS)),
        ("duration_ms", Amount),
        ("error_type", Text),
        ("model_calls", References),
        ("conversation", Items),
    ],
};

/// One execution of a tool.
pub static TOOL_CALL: Schema = Schema {
    kind: Some("tool_call"),
    fields: &[
        ("invocation_id", RequiredText),
        ("tool_call_id", RequiredText),
        ("sandbox_id", Text),
        ("tool_name", Text),
        ("started_at", Number),
        ("completed_at", Number),
        ("duration_ms", Amount),
        ("timing_source", Word(TIMING_SOURCE)),
        ("status", Status(TOOL_STATUS)),
        ("error_type", Text),
    ],
};

/// One compaction of a conversation's context.
pub static COMPACTION: Schema = Schema {
    kind: Some("context_compaction"),
    fields: &[
        ("invocation_id", RequiredText),
        ("observed_at", Number),
        ("trigger", Text),
        ("tokens_before", Count),
        ("tokens_after", Count),
        ("outcome", Status(COMPACTION_OUTCOME)),
        ("summary", Text),
        ("first_kept_item_id", Text),
        ("before_model_call", FieldType::Reference),
        ("model_calls", References),
        ("after_model_call", FieldType::Reference),
    ],
};

/// One sandbox.
pub static SANDBOX: Schema = Schema {
    kind: Some("sandbox"),
    fields: &[
        ("role", RequiredWord(SANDBOX_ROLE)),
        ("provider", Text),
        ("sandbox_id", Text),
        ("outcome", Status(SANDBOX_OUTCOME)),
        ("exit_code", Integer),
        ("wall_time_s", Amount),
        ("cpu_time_s", Amount),
        ("peak_memory_mib", Amount),
        ("resource_usage_source", Text),
        ("error_type", Text),
    ],
};

/// A judge that made model calls.
pub static VERIFIER: Schema = Schema {
    kind: None,
    fields: &[
        ("invocation_id", RequiredText),
        ("verifier", Text),
        ("status", Status(INVOCATION_STATUS)),
        ("duration_ms", Amount),
        ("model_calls", References),
    ],
};

/// A gap.
pub static GAP: Schema = Schema {
    kind: None,
    fields: &[
        ("code", RequiredText),
        ("invocation_id", Text),
        ("detail", Text),
    ],
};

/// The most fields that a schema has.
const MOST_FIELDS: usize = 16;

static KINDS: [&Schema; 4] = [&INVOCATION, &TOOL_CALL, &COMPACTION, &SANDBOX];

/// A record of a known kind.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What it is.
    pub schema: &'static Schema,
    /// The values of the schema's fields, in its order.
    pub fields: Vec<Field<'a>>,
    /// Keys that the contract does not know.
    pub extra: Members<'a>,
}

impl<'a> Record<'a> {
    /// Reads a record of one schema.
    ///
    /// # Errors
    /// It is no object, a field is malformed, or a tool call completed before it started.
    pub fn parse(
        schema: &'static Schema,
        part: Part<'_, 'a>,
        non_finite: NonFinite<'_>,
    ) -> Result<Self, Malformed> {
        let record = Self::read(schema, part, non_finite)?;
        // Of tool calls alone: clocks of a model server may disagree, and cost nothing.
        let times = ["started_at", "completed_at"].map(|name| record.number(name));
        if let [Some(started), Some(completed)] = times
            && completed < started
            && schema.kind == TOOL_CALL.kind
        {
            return Err(Malformed("completed_at"));
        }
        Ok(record)
    }

    /// Reads a record as [`Self::parse`] does, each field for itself.
    ///
    /// # Errors
    /// It is no object, or a field is malformed.
    pub fn read(
        schema: &'static Schema,
        part: Part<'_, 'a>,
        non_finite: NonFinite<'_>,
    ) -> Result<Self, Malformed> {
        if !part.raw().is_object() {
            return Err(Malformed(schema.kind.unwrap_or("records")));
        }
        debug_assert!(schema.fields.len() <= MOST_FIELDS);
        let mut values = [None; MOST_FIELDS];
        let mut extra = Members::new();
        let mut kind = None;
        for (key, value) in part.members() {
            if let Some(index) = schema.fields.iter().position(|(name, _)| key.is_str(name)) {
                values[index] = Some(value);
            } else if schema.kind.is_some() && key.is_str("kind") {
                kind = Some(value.raw());
            } else {
                extra.push((Key::Raw(key), Value::Raw(value.raw())));
            }
        }
        unique_members(&mut extra);
        // Of duplicate keys the last wins, here too.
        let is_ours = |value: Raw<'_>| {
            !non_finite.holds(value)
                && (value.is_null() || schema.kind.is_some_and(|kind| value.is_str(kind)))
        };
        if kind.is_some_and(|value| !is_ours(value)) {
            return Err(Malformed("kind"));
        }
        let mut fields = Vec::with_capacity(schema.fields.len());
        for ((name, kind), value) in schema.fields.iter().zip(values) {
            fields.push(kind.parse(name, value, non_finite)?);
        }
        Ok(Self {
            schema,
            fields,
            extra,
        })
    }

    /// A record of which everything is missing; none where something must be there.
    #[must_use]
    pub fn missing(schema: &'static Schema) -> Option<Self> {
        let fields = schema.fields.iter().map(|(_, kind)| kind.missing());
        Some(Self {
            schema,
            fields: fields.collect::<Option<_>>()?,
            extra: Members::new(),
        })
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.schema
            .fields
            .iter()
            .position(|(field, _)| *field == name)
    }

    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field<'a>> {
        Some(&self.fields[self.index(name)?])
    }

    /// A field to be changed.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Field<'a>> {
        let index = self.index(name)?;
        Some(&mut self.fields[index])
    }

    /// A field's string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.field(name)?.text()
    }

    /// A field's number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.field(name)?.number()
    }

    /// The record's invocation, empty for a sandbox.
    #[must_use]
    pub fn invocation_id(&self) -> Cow<'a, str> {
        self.text("invocation_id").unwrap_or_default()
    }

    /// The references under `model_calls`.
    #[must_use]
    pub fn references(&self) -> &[Reference<'a>] {
        match self.field("model_calls") {
            Some(Field::References(references)) => references,
            _ => &[],
        }
    }

    /// The references under `model_calls`, to be changed.
    pub fn references_mut(&mut self) -> Option<&mut Vec<Reference<'a>>> {
        match self.field_mut("model_calls") {
            Some(Field::References(references)) => Some(references),
            _ => None,
        }
    }

    /// A single reference by its field's name.
    #[must_use]
    pub fn reference(&self, name: &str) -> Option<&Reference<'a>> {
        match self.field(name) {
            Some(Field::Reference(reference)) => reference.as_deref(),
            _ => None,
        }
    }

    /// The record as it stands in observations, every key present; with `extra` unknown
    /// keys too.
    #[must_use]
    pub fn to_value(&self, extra: bool) -> Value<'a> {
        let mut members = Members::with_capacity(self.fields.len() + 1 + self.extra.len());
        if let Some(kind) = self.schema.kind {
            members.push((Key::Name("kind"), Value::Str(Cow::Borrowed(kind))));
        }
        for ((name, _), field) in self.schema.fields.iter().zip(&self.fields) {
            members.push((Key::Name(name), field.to_value(extra)));
        }
        if extra {
            members.extend(self.extra.iter().cloned());
        }
        Value::Object(members)
    }
}

/// The schema of a record by its `kind`.
///
/// # Errors
/// The kind is missing or no string.
pub fn schema_of(part: Part<'_, '_>) -> Result<Option<&'static Schema>, Malformed> {
    let kind = part.get("kind").map(Part::raw);
    let kind = kind.filter(|kind| kind.kind() == Kind::String);
    let kind = kind.ok_or(Malformed("kind"))?;
    let is_it = |schema: &&Schema| schema.kind.is_some_and(|name| kind.is_str(name));
    Ok(KINDS.into_iter().find(is_it))
}
