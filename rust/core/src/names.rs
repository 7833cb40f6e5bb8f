//! The names of the fields that are looked for in requests, responses and items: a key is
//! compared with them once, while it is read, and by number from then on.

use crate::json::{FieldName, Raw};

macro_rules! names {
    ($($len:literal { $($text:literal $name:ident)+ })+) => {
        /// A field's name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Name {
            /// One that nothing is wanted of.
            #[default]
            Other,
            $($(#[doc = concat!("`", $text, "`")] $name,)+)+
        }

        impl Name {
            fn of_text(text: &[u8]) -> Self {
                match text.len() {
                    $($len => {
                        $(
                            const { assert!($text.len() == $len) };
                            if text == $text.as_bytes() {
                                return Self::$name;
                            }
                        )+
                        Self::Other
                    })+
                    _ => Self::Other,
                }
            }
        }
    };
}

names! {
    2 { "id" Id }
    4 { "type" Type "role" Role "name" Name "text" Text }
    5 { "model" Model "usage" Usage "index" Index "input" Input "tools" Tools }
    6 { "output" Output "status" Status "reason" Reason "system" System }
    7 { "content" Content "choices" Choices "message" Message "call_id" CallId
        "summary" Summary "request" Request "dialect" Dialect }
    8 { "messages" Messages "function" Function "thinking" Thinking "logprobs" Logprobs
        "response" Response }
    9 { "arguments" Arguments "reasoning" Reasoning "model_ref" ModelRef }
    10 { "tool_calls" ToolCalls "started_at" StartedAt "latency_ms" LatencyMs }
    11 { "stop_reason" StopReason "annotations" Annotations "status_code" StatusCode
        "request_raw" RequestRaw }
    12 { "input_tokens" InputTokens "total_tokens" TotalTokens "completed_at" CompletedAt
        "response_raw" ResponseRaw "instructions" Instructions }
    13 { "finish_reason" FinishReason "output_tokens" OutputTokens
        "prompt_tokens" PromptTokens "cached_tokens" CachedTokens
        "model_call_id" ModelCallId }
    14 { "error_category" ErrorCategory }
    15 { "latency_ttft_ms" LatencyTtftMs "response_source" ResponseSource }
    16 { "reasoning_tokens" ReasoningTokens }
    17 { "reasoning_content" ReasoningContent "completion_tokens" CompletionTokens
        "client_session_id" ClientSessionId }
    18 { "incomplete_details" IncompleteDetails "upstream_attempted" UpstreamAttempted }
    19 { "cached_input_tokens" CachedInputTokens }
    20 { "input_tokens_details" InputTokensDetails
        "upstream_status_code" UpstreamStatusCode }
    21 { "prompt_tokens_details" PromptTokensDetails
        "output_tokens_details" OutputTokensDetails
        "local_response_reason" LocalResponseReason }
    23 { "cache_read_input_tokens" CacheReadInputTokens
        "prompt_cache_hit_tokens" PromptCacheHitTokens
        "reasoning_output_tokens" ReasoningOutputTokens }
    25 { "completion_tokens_details" CompletionTokensDetails }
    27 { "cache_creation_input_tokens" CacheCreationInputTokens }
}

impl FieldName for Name {
    #[inline]
    fn of(key: Raw<'_>) -> Self {
        let [b'"', text @ .., b'"'] = key.bytes() else {
            return Self::Other;
        };
        match Self::of_text(text) {
            Self::Other if memchr::memchr(b'\\', text).is_some() => key
                .as_str()
                .map_or(Self::Other, |text| Self::of_text(text.as_bytes())),
            name => name,
        }
    }

    /// Members of a response that nothing below is wanted of: they may be large.
    #[inline]
    fn is_closed(self) -> bool {
        matches!(
            self,
            Self::Logprobs | Self::Input | Self::Arguments | Self::Annotations | Self::Tools
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_however_it_is_escaped() {
        let name = |key: &[u8]| Name::of(Raw::new(key));
        assert_eq!(name(b"\"usage\""), Name::Usage);
        assert_eq!(name(b"\"us\\u0061ge\""), Name::Usage);
        assert_eq!(name(b"\"us\\u0061ga\""), Name::Other);
        assert_eq!(name(b"\"\""), Name::Other);
        assert_eq!(name(b"\"usag\\\\\""), Name::Other);
    }
}
